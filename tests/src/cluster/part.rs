//! One server of a cluster: can be stopped, started again with the same arguments, and frozen.

use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow};
use nix::sys::signal::Signal;

use crate::process::urgent;
use crate::{Process, eventually};

/// How long a server may take to end in good order. An API server that waits for its watches takes longer than anyone
/// wants.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(3);

/// How much of a log is shown when something fails.
const MAX_PRINTED_LINES: usize = 40;

/// A server, running or not. Its log continues over restarts.
#[derive(Debug)]
pub(super) struct Part {
    name: &'static str,
    program: PathBuf,
    arguments: Vec<OsString>,
    log: PathBuf,
    group: i32,
    process: Option<Process>,
}

impl Part {
    /// Returns a server that does not run yet; its processes join the group.
    pub(super) fn new(name: &'static str, program: &Path, folder: &Path, group: i32) -> Self {
        let log = folder.join(format!("{name}.log"));
        Self { name, program: program.to_owned(), arguments: Vec::new(), log, group, process: None }
    }

    /// Adds an argument.
    pub(super) fn argument(&mut self, argument: impl Into<OsString>) {
        self.arguments.push(argument.into());
    }

    /// Adds `--flag=value`.
    pub(super) fn flag(&mut self, flag: &str, value: impl AsRef<OsStr>) {
        let mut argument = OsString::from(format!("--{flag}="));
        argument.push(value);
        self.argument(argument);
    }

    /// Starts it, and returns at once.
    pub(super) fn start(&mut self) -> Result<()> {
        let log = OpenOptions::new().create(true).append(true).open(&self.log);
        let log = log.with_context(|| format!("can't open {}", self.log.display()))?;
        let mut command = urgent(&self.program);
        command.args(&self.arguments).process_group(self.group);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.process = Some(Process::spawn(self.name, &mut command)?);
        Ok(())
    }

    /// Asks it to end, and makes it.
    pub(super) async fn stop(&mut self) -> Result<()> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        process.signal(Signal::SIGTERM)?;
        if process.wait_for_exit(TERMINATION_TIMEOUT).await.is_err() {
            process.kill()?;
        }
        Ok(())
    }

    /// Makes it end at once.
    pub(super) fn kill(&mut self) -> Result<()> {
        self.process.take().map_or(Ok(()), |mut process| process.kill().map(drop))
    }

    /// Sends a signal.
    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        self.process.as_ref().with_context(|| format!("{} does not run", self.name))?.signal(signal)
    }

    /// Returns the process id, if it has been started.
    pub(super) fn pid(&self) -> Option<i32> {
        self.process.as_ref().map(Process::pid)
    }

    /// Waits for a condition that only a running server can meet; an error has the end of the log.
    pub(super) async fn until(
        &mut self,
        within: Duration,
        what: &str,
        mut condition: impl AsyncFnMut() -> bool,
    ) -> Result<()> {
        let met = eventually(within, what, async || {
            if let Err(ended) = self.check() {
                return Some(Err(ended));
            }
            condition().await.then_some(Ok(()))
        });
        met.await.and_then(|met| met).map_err(|error| self.explain(&error))
    }

    /// An error if it has ended by itself.
    fn check(&mut self) -> Result<()> {
        let Some(process) = &mut self.process else { return Err(anyhow!("{} does not run", self.name)) };
        process.try_exited()?.map_or(Ok(()), |status| Err(anyhow!("{} has ended: {status}", self.name)))
    }

    /// Returns what it has logged.
    fn log(&self) -> String {
        fs::read(&self.log).map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default()
    }

    /// Adds the end of the log to an error.
    fn explain(&self, error: &Error) -> Error {
        let log = self.log();
        let lines = log.lines().collect::<Vec<_>>();
        let tail = lines[lines.len().saturating_sub(MAX_PRINTED_LINES)..].join("\n");
        anyhow!("{error:#}; the end of the log of {}:\n{tail}", self.name)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // A destructor can't return the error, and the guard of the group makes sure.
        let _ = self.kill();
    }
}
