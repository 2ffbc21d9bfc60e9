//! `nudge-agent exec` under a guard.

pub mod access;
pub mod client;
pub mod config_dir;
pub mod raw;
pub mod tls;
pub mod under_test;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow};
use tempfile::TempDir;

use self::access::Access;
use crate::affinity::Pinned;
use crate::{Process, eventually};

pub use self::under_test::WAIT_TIMEOUT;

/// How long an agent may take to start its child, on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A child that does nothing.
pub const IDLE: [&str; 2] = ["sleep", "infinity"];

/// `nudge-agent exec --dir DIR --port 0 ...`, to be completed and started.
#[derive(Debug)]
pub struct ExecCommand {
    wrapper: Vec<OsString>,
    binary: OsString,
    dir: OsString,
    port: u16,
    arguments: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    core: Option<usize>,
}

impl ExecCommand {
    /// Serves the configs of `dir` on a free port.
    pub fn new(binary: &Path, dir: &Path) -> Self {
        let (wrapper, arguments, variables) = Default::default();
        Self { wrapper, binary: binary.into(), dir: dir.into(), port: 0, arguments, variables, core: None }
    }

    /// Starts the agent by a command that becomes it, such as setpriv(1).
    #[must_use]
    pub fn under<S: AsRef<OsStr>>(mut self, wrapper: impl IntoIterator<Item = S>) -> Self {
        self.wrapper.extend(wrapper.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// Sets a variable of the agent, and so of the child.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Serves on this port.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Adds arguments, to stand before the child's command.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Keeps the agent, and its child, on one core.
    #[must_use]
    pub fn core(mut self, core: usize) -> Self {
        self.core = Some(core);
        self
    }

    /// Starts it and returns at once.
    pub fn spawn<S: AsRef<OsStr>>(&self, child: &[S]) -> Result<Agent> {
        self.spawn_in(home()?, child)
    }

    /// Starts it and waits until the child runs, and so the endpoint serves.
    pub async fn start<S: AsRef<OsStr>>(&self, child: &[S]) -> Result<(Agent, Access)> {
        let home = home()?;
        let file = home.path().join("environment");
        let mut agent = self.spawn_in(home, &access::reporting(&file, child))?;
        let access = eventually(START_TIMEOUT, "the agent starts its child", async || {
            Access::read(&file).or_else(|| agent.ended_early().map(Err))
        });
        let access = access.await.and_then(|access| access).map_err(|error| agent.explain(&error))?;
        Ok((agent, access))
    }

    fn spawn_in<S: AsRef<OsStr>>(&self, home: TempDir, child: &[S]) -> Result<Agent> {
        let (program, arguments) = self.wrapper.split_first().map_or((&self.binary, &[][..]), |split| split);
        let mut command = Command::new(program);
        if !self.wrapper.is_empty() {
            command.args(arguments).arg(&self.binary);
        }
        command.arg("exec").arg("--dir").arg(&self.dir).args(["--port", &self.port.to_string()]);
        command.args(&self.arguments).arg("--").args(child);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let _pinned = self.core.map(Pinned::to).transpose()?;
        Agent::spawn(command, home)
    }
}

const LOG: &str = "log";
const OUTPUT: &str = "output";

pub(crate) fn home() -> Result<TempDir> {
    tempfile::Builder::new().prefix("nudge-agent-").tempdir().context("can't make a folder for the agent")
}

/// A running agent with a folder of its own; both are gone when it is dropped.
#[derive(Debug)]
pub struct Agent {
    // Dropped in this order: the agent is to clean up its folder before it is removed.
    process: Process,
    home: TempDir,
}

impl Agent {
    /// Starts `command`, whose output goes to files in `home`.
    pub(crate) fn spawn(mut command: Command, home: TempDir) -> Result<Self> {
        let log = File::create(home.path().join(LOG)).context("can't make the agent's log")?;
        let output = File::create(home.path().join(OUTPUT)).context("can't make a file for the child's output")?;
        // Whatever the agent keeps for the run goes with the folder, even if it is killed.
        command.env("TMPDIR", home.path()).env_remove("XDG_RUNTIME_DIR");
        command.stdin(Stdio::null()).stdout(output).stderr(log);
        Ok(Self { process: Process::spawn("nudge-agent", &mut command)?, home })
    }

    /// Returns the agent's process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Returns the agent's process id.
    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// Returns what it has logged so far.
    pub fn log(&self) -> String {
        self.read(LOG)
    }

    /// Returns what its child has written to standard output so far.
    pub fn output(&self) -> String {
        self.read(OUTPUT)
    }

    fn read(&self, file: &str) -> String {
        fs::read(self.home.path().join(file))
            .map(|text| String::from_utf8_lossy(&text).into_owned())
            .unwrap_or_default()
    }

    /// Adds the log to an error.
    pub fn explain(&self, error: &Error) -> Error {
        anyhow!("{error:#}; the agent's log:\n{}", self.log())
    }

    /// An error, with the log, if the agent has ended.
    pub fn check(&mut self) -> Result<()> {
        self.ended_early().map_or(Ok(()), |error| Err(self.explain(&error)))
    }

    fn ended_early(&mut self) -> Option<Error> {
        let status = self.process.try_exited().transpose()?;
        Some(status.map_or_else(|error| error, |status| anyhow!("the agent has ended: {status}")))
    }
}
