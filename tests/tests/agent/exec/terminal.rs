//! A terminal to type at, with a command in it.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;

use anyhow::{Context, Result};
use nix::fcntl::OFlag;
use nix::pty::{PtyMaster, grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, tcgetpgrp};
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::{ConfigDir, Process, binary, eventually, procfs};
use tempfile::TempDir;

/// A terminal with a command in it, in a session of its own.
pub(super) struct Terminal {
    master: PtyMaster,
    shown: String,
    pub(super) process: Process,
    _temporary: TempDir,
}

impl Terminal {
    pub(super) fn start(command: &[impl AsRef<OsStr>]) -> Result<Self> {
        let master = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let mut slave = OpenOptions::new();
        let slave = slave.read(true).write(true).custom_flags(OFlag::O_NOCTTY.bits()).open(ptsname_r(&master)?)?;
        let mut setsid = Command::new("setsid");
        setsid.arg("--ctty").args(command).env("PS1", "$ ").env_remove("ENV");
        setsid.stdin(slave.try_clone()?).stdout(slave.try_clone()?).stderr(slave);
        let temporary = tempfile::Builder::new().prefix("nudge-terminal-").tempdir()?;
        setsid.env("TMPDIR", temporary.path()).env_remove("XDG_RUNTIME_DIR");
        let process = Process::spawn("setsid", &mut setsid)?;
        Ok(Self { master, shown: String::new(), process, _temporary: temporary })
    }

    /// Types keys.
    pub(super) fn type_keys(&mut self, keys: &str) -> Result<()> {
        Ok(self.master.write_all(keys.as_bytes())?)
    }

    /// Presses Ctrl-C, and waits until the application has ended.
    pub(super) async fn interrupt(&mut self, app: i32) -> Result<()> {
        self.type_keys(CTRL_C)?;
        eventually(WAIT_TIMEOUT, "the application has ended", async || procfs::state(app).is_none().then_some(())).await
    }

    /// Asks the shell with which status the last command has ended.
    pub(super) async fn wait_for_status(&mut self, status: i32) -> Result<()> {
        self.type_keys("echo ended $?\n")?;
        self.wait_for_text(1, &format!("ended {status}")).await
    }

    /// Returns all that has been shown so far.
    pub(super) fn output(&mut self) -> &str {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = self.master.read(&mut bytes) {
            self.shown.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        &self.shown
    }

    /// Waits until `text` has been shown this many times.
    pub(super) async fn wait_for_text(&mut self, times: usize, text: &str) -> Result<()> {
        let shown = eventually(WAIT_TIMEOUT, &format!("{times} times {text:?}"), async || {
            (self.output().matches(text).count() >= times).then_some(())
        })
        .await;
        shown.map_err(|error| error.context(format!("the terminal shows {:?}", self.output())))
    }

    /// Waits for the application's first line and gives its process id.
    pub(super) async fn ready(&mut self) -> Result<i32> {
        let ready = |shown: &str| shown.lines().find_map(|line| line.strip_suffix(" ready")?.parse().ok());
        let pid = eventually(WAIT_TIMEOUT, "the application is ready", async || ready(self.output())).await;
        pid.map_err(|error| error.context(format!("the terminal shows {:?}", self.output())))
    }

    /// Waits until the process group is the one that has the terminal.
    pub(super) async fn belongs_to(&self, group: i32) -> Result<()> {
        let has_it = async || (tcgetpgrp(&self.master) == Ok(Pid::from_raw(group))).then_some(());
        eventually(WAIT_TIMEOUT, &format!("the terminal belongs to {group}"), has_it).await
    }

    /// Returns the same for an application in the foreground, which the agent gives the terminal after its start.
    pub(super) async fn ready_in_front(&mut self) -> Result<i32> {
        let app = self.ready().await?;
        self.belongs_to(app).await?;
        Ok(app)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A shell does not end its jobs when it is ended, and after a failure they may be in any state.
        for pid in procfs::descendants(self.process.pid()).unwrap_or_default() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// Returns a command line that runs the application under the agent.
pub(super) fn arguments(dir: &ConfigDir, app: &[&str]) -> Result<Vec<String>> {
    let agent = binary::debug()?.to_str().context("odd path")?;
    let dir = dir.path().to_str().context("odd path")?;
    let arguments = [agent, "exec", "--dir", dir, "--port", "0", "--notify", "SIGUSR1", "--log-level", "debug", "--"];
    Ok(arguments.iter().chain(app).map(|&argument| argument.to_owned()).collect())
}

/// Returns the same for a shell to type.
pub(super) fn command_line(dir: &ConfigDir, app: &[&str]) -> Result<String> {
    Ok(arguments(dir, app)?.join(" "))
}

pub(super) const CTRL_C: &str = "\x03";
pub(super) const CTRL_Z: &str = "\x1a";
