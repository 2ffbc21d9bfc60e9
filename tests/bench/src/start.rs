//! From the start of the agent to the start of the application, compared with starting the application alone.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use nudge_tests::clock::Monotonic;
use nudge_tests::{ExecCommand, Process};

use crate::bench::Bench;
use crate::row::{Row, Target, Unit};
use crate::samples::Samples;
use crate::subscriber::Reports;
use crate::{payload, progress};

const DICTIONARY_BYTES: usize = 4 * 1024;
const ALLOWED_MS: f64 = 30.0;
const START_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) async fn measure(bench: &mut Bench) -> Result<()> {
    let count = bench.scale.starts;
    progress(&format!("start to ready: {count} times"));
    let dir = payload::config_dir(DICTIONARY_BYTES)?;
    let exec = ExecCommand::new(&bench.binary, dir.path());

    let mut agent_times = Vec::new();
    let mut floor_times = Vec::new();
    for number in 0..count {
        let mut reports = Reports::create(dir.beside(&format!("agent-{number}")))?;
        let child = reports.subscriber()?;
        let begun = Monotonic::now();
        let agent = exec.spawn(&child)?;
        let ready = reports.next(START_TIMEOUT).await.map_err(|error| agent.explain(&error))?;
        agent_times.push(millis(begun, ready));

        let mut reports = Reports::create(dir.beside(&format!("floor-{number}")))?;
        let child = reports.subscriber()?;
        let begun = Monotonic::now();
        let _process = spawn(&child)?;
        floor_times.push(millis(begun, reports.next(START_TIMEOUT).await?));
    }

    let (agent, floor) = (Samples::new(agent_times), Samples::new(floor_times));
    let row = |what: &str, value: fn(&Samples) -> f64| {
        let row = Row::new(format!("start to ready: {what}"), Unit::Millis, value(&agent));
        row.beside("floor", value(&floor)).target(Target::AtMost(ALLOWED_MS))
    };
    bench.report.row(row("p50", Samples::median));
    bench.report.row(row("max", Samples::max));
    bench.report.remark(format!(
        "start: {count} first starts, each with a new identity; the floor starts the same child alone"
    ));
    Ok(())
}

fn spawn(command: &[PathBuf]) -> Result<Process> {
    let (program, arguments) = command.split_first().context("no command")?;
    Process::spawn("the subscriber", Command::new(program).args(arguments))
}

fn millis(begun: Monotonic, ready: Monotonic) -> f64 {
    ready.since(begun).as_secs_f64() * 1e3
}
