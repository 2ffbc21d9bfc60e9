//! The lines that an application writes, which become readings of the history.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde::Deserialize;

use super::kubelet::PodHealth;
use crate::history::recorder::Recorder;
use crate::history::{How, Occurrence, Values};

/// How often the output is read.
const READ_INTERVAL: Duration = Duration::from_millis(100);

/// A line of the application.
#[derive(Deserialize)]
struct Line {
    at: u64,
    pid: u32,
    how: How,
    values: Values,
}

/// Records what an application writes, until the task is ended.
pub(crate) async fn record_output(file: PathBuf, pod: String, recorder: Recorder, health: Arc<PodHealth>) {
    let (mut offset, mut unparsed) = (0, Vec::new());
    let mut ticks = tokio::time::interval(READ_INTERVAL);
    loop {
        ticks.tick().await;
        if read_more(&file, &mut offset, &mut unparsed).is_err() {
            continue;
        }
        while let Some(end) = unparsed.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = unparsed.drain(..=end).collect();
            // An application that was killed in the middle of a line leaves one that can't be parsed.
            let Ok(line) = serde_json::from_slice::<Line>(&line) else { continue };
            health.record_reading(line.pid, line.how, &line.values);
            let reading = Occurrence::Read { pod: pod.clone(), life: line.pid, how: line.how, values: line.values };
            recorder.note_at(recorder.time_of(line.at), reading);
        }
    }
}

fn read_more(file: &PathBuf, offset: &mut u64, unparsed: &mut Vec<u8>) -> Result<()> {
    let mut file = File::open(file)?;
    file.seek(SeekFrom::Start(*offset))?;
    *offset += u64::try_from(file.read_to_end(unparsed)?)?;
    Ok(())
}
