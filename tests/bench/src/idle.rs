//! The cost of an idle agent: how often it wakes, and how large its file is.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use nudge_tests::agent::IDLE;
use nudge_tests::{ExecCommand, procfs};

use crate::bench::Bench;
use crate::row::{Row, Target, Unit, float};
use crate::{payload, progress};

const DICTIONARY_BYTES: usize = 4 * 1024;
/// The time after the start for what is still under way.
const SETTLE_DELAY: Duration = Duration::from_secs(2);
/// The limit of wake-ups: one of one thread for the slow re-read, should it fall into the time.
const ALLOWED_WAKE_UPS: f64 = 2.0;
const ALLOWED_KIB: f64 = 5.0 * 1024.0;

pub(crate) async fn measure_wake_ups(bench: &mut Bench) -> Result<()> {
    let time = bench.scale.idle;
    progress(&format!("wake-ups while idle for {time:?}"));
    let dir = payload::config_dir(DICTIONARY_BYTES)?;
    let exec = ExecCommand::new(&bench.binary, dir.path()).args(["--notify", "SIGUSR1"]);
    let (agent, _) = exec.start(&IDLE).await?;
    tokio::time::sleep(SETTLE_DELAY).await;

    let before = procfs::context_switches(agent.pid())?;
    tokio::time::sleep(time).await;
    let wake_ups = procfs::context_switches(agent.pid())?.saturating_sub(before);
    let row = Row::new(format!("wake-ups while idle for {time:?}"), Unit::Count, float(wake_ups));
    bench.report.row(row.target(Target::AtMost(ALLOWED_WAKE_UPS)));
    Ok(())
}

pub(crate) fn measure_size(bench: &mut Bench) -> Result<()> {
    let file = fs::metadata(&bench.binary).with_context(|| format!("can't read {}", bench.binary.display()))?;
    let row = Row::new("binary", Unit::Kib, float(file.len()) / 1024.0);
    bench.report.row(row.target(Target::AtMost(ALLOWED_KIB)));
    Ok(())
}
