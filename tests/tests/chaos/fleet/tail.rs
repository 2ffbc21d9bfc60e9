//! Reads what an application writes into the history.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde::Deserialize;

use super::kubelet::Condition;
use crate::history::recorder::Recorder;
use crate::history::{How, Values, What};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// A line of the application.
#[derive(Deserialize)]
struct Line {
    at: u64,
    pid: u32,
    how: How,
    values: Values,
}

/// Follows the output until the task is ended.
pub(crate) async fn tail(file: PathBuf, pod: String, recorder: Recorder, condition: Arc<Condition>) {
    let (mut read, mut rest) = (0, Vec::new());
    let mut turns = tokio::time::interval(LOOK);
    loop {
        turns.tick().await;
        if more(&file, &mut read, &mut rest).is_err() {
            continue;
        }
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            // One that was killed in the middle of a line has no line.
            let Ok(line) = serde_json::from_slice::<Line>(&line) else { continue };
            condition.seen(line.pid, line.how, &line.values);
            let what = What::Read { pod: pod.clone(), life: line.pid, how: line.how, values: line.values };
            recorder.note_at(recorder.time_of(line.at), what);
        }
    }
}

fn more(file: &PathBuf, read: &mut u64, rest: &mut Vec<u8>) -> Result<()> {
    let mut file = File::open(file)?;
    file.seek(SeekFrom::Start(*read))?;
    *read += u64::try_from(file.read_to_end(rest)?)?;
    Ok(())
}
