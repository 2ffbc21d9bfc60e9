//! From the switch of `current` to the application's signal handler, compared with a process that does nothing else.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use nudge_tests::clock::Monotonic;
use nudge_tests::{ConfigDir, ExecCommand, Process};

use crate::bench::Bench;
use crate::payload::{self, CONFIG, VERSIONS};
use crate::row::{Row, Target, Unit};
use crate::samples::Samples;
use crate::subscriber::Reports;
use crate::{floor, progress};

const DICTIONARY_BYTES: usize = 4 * 1024;
/// What the agent may take longer than the floor.
const ALLOWED_MS: f64 = 2.0;
/// Long enough for a start or a signal on a machine that has much else to do.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(10);
/// The time between two switches: a configuration changes when all is quiet, and the last change has been dealt with.
const SWITCH_INTERVAL: Duration = Duration::from_millis(5);

pub(crate) async fn measure(bench: &mut Bench) -> Result<()> {
    let count = bench.scale.switches;
    progress(&format!("switch of current: {count} times"));

    let mut agent = Watched::new()?;
    let exec = ExecCommand::new(&bench.binary, agent.dir.path()).args(["--notify", "SIGUSR1"]);
    let mut process = exec.spawn(&agent.reports.subscriber()?)?;
    agent.ready().await.map_err(|error| process.explain(&error))?;

    let mut floor = Watched::new()?;
    let _floor_process = floor.spawn_floor()?;
    floor.ready().await.context("the floor")?;

    let mut agent_times = Vec::new();
    let mut floor_times = Vec::new();
    for number in 0..count {
        // By turns, so that whatever else the machine does meets both.
        let version = VERSIONS[(number + 1) % VERSIONS.len()];
        let time = agent.time_switch(version).await;
        agent_times.push(time.map_err(|error| process.explain(&error))?);
        floor_times.push(floor.time_switch(version).await.context("the floor")?);
    }
    process.check()?;
    if agent.unasked > 0 {
        bench.report.remark(format!("switch: the agent sent {} signals more than there were switches", agent.unasked));
    }

    let (agent, floor) = (Samples::new(agent_times), Samples::new(floor_times));
    let row = |what: &str, value: fn(&Samples) -> f64| {
        Row::new(format!("switch to handler: {what}"), Unit::Millis, value(&agent)).beside("floor", value(&floor))
    };
    bench.report.row(row("p50", Samples::median));
    bench.report.row(row("p99", |samples| samples.percentile(99)).target(Target::PeerPlus(ALLOWED_MS)));
    bench.report.row(row("max", Samples::max));
    bench.report.remark(format!(
        "switch: {count} switches between two versions of {DICTIONARY_BYTES} bytes; the floor is a process that waits for inotify \
         and calls kill()"
    ));
    Ok(())
}

/// A folder of configuration, and the pipe of the subscriber that is notified of its changes.
struct Watched {
    dir: ConfigDir,
    reports: Reports,
    /// Signals that no switch had caused.
    unasked: usize,
}

impl Watched {
    fn new() -> Result<Self> {
        let dir = payload::config_dir(DICTIONARY_BYTES)?;
        let reports = Reports::create(dir.beside("reports"))?;
        Ok(Self { dir, reports, unasked: 0 })
    }

    fn spawn_floor(&self) -> Result<Process> {
        let bench = std::env::current_exe().context("can't find this program's file")?;
        let mut command = Command::new(bench);
        command.arg(floor::NAME).arg(self.dir.path().join(CONFIG)).arg(self.reports.path());
        Process::spawn("the floor", &mut command)
    }

    async fn ready(&mut self) -> Result<()> {
        self.reports.next(SWITCH_TIMEOUT).await.context("the start of the subscriber")?;
        Ok(())
    }

    /// Switches, and gives the time until the handler was entered, in ms.
    async fn time_switch(&mut self, version: &str) -> Result<f64> {
        tokio::time::sleep(SWITCH_INTERVAL).await;
        self.unasked += self.reports.drain();
        let switch = self.dir.stage_switch(CONFIG, version)?;
        let switched = Monotonic::now();
        switch.commit()?;
        let entered = self.reports.next(SWITCH_TIMEOUT).await?;
        Ok(entered.since(switched).as_secs_f64() * 1e3)
    }
}
