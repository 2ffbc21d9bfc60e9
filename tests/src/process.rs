//! A child process that can't outlive the test that started it.

use std::ffi::OsStr;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{eventually, eventually_blocking, procfs};

/// How long a process may take to end after SIGTERM before it is killed with all that it started.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(3);

/// Ends and reaps its process when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
}

/// Returns a command that gets its share of the processors before the tests do, which share them with dozens of others:
/// those of a real server are its own. Only root may do that; others run it all the same.
pub fn urgent(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "-5"]).arg(program);
    command
}

impl Process {
    /// Starts `command`; `name` stands in errors.
    pub fn spawn(name: &str, command: &mut Command) -> Result<Self> {
        let child =
            command.spawn().with_context(|| format!("can't start {name}: {}", command.get_program().display()))?;
        Ok(Self { child, name: name.to_owned() })
    }

    /// Returns the process id. It stays this process's until it has been reaped.
    pub fn pid(&self) -> i32 {
        // Process ids are positive and far below 2^31; the standard library merely has another type for them.
        self.child.id().cast_signed()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill(Pid::from_raw(self.pid()), signal).with_context(|| format!("can't send {signal} to {}", self.name))
    }

    /// Returns the status if it has ended.
    pub fn try_exited(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("can't wait for {}", self.name))
    }

    /// Waits for the end.
    pub async fn wait_for_exit(&mut self, within: Duration) -> Result<ExitStatus> {
        let description = format!("{} ends", self.name);
        eventually(within, &description, async || self.try_exited().transpose()).await?
    }

    /// Asks the process to end, and makes it, within a few seconds. What [`Drop`] does, with the status.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        if let Some(status) = self.try_exited()? {
            return Ok(status);
        }
        self.signal(Signal::SIGTERM)?;
        let description = format!("{} ends after SIGTERM", self.name);
        if let Ok(status) = eventually_blocking(TERMINATION_TIMEOUT, &description, || self.try_exited().transpose()) {
            return status;
        }
        self.kill_all()
    }

    /// Makes the process end at once, even one that is stopped by a signal.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        self.child.kill().with_context(|| format!("can't kill {}", self.name))?;
        self.child.wait().with_context(|| format!("can't wait for {}", self.name))
    }

    /// A killed process can't end what it has started, so that is killed too.
    fn kill_all(&mut self) -> Result<ExitStatus> {
        let descendants = procfs::descendants(self.pid())?;
        self.child.kill()?;
        for pid in descendants {
            // It may have ended by itself.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        self.child.wait().with_context(|| format!("can't wait for {}", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A destructor can't return the error, and a test that cares calls `stop` itself.
        let _ = self.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_dropped_process_is_gone_and_reaped() {
        let process = Process::spawn("sleep", Command::new("sleep").arg("60")).unwrap();
        let proc = format!("/proc/{}", process.pid());
        assert!(Path::new(&proc).exists());
        drop(process);
        assert!(!Path::new(&proc).exists());
    }

    #[tokio::test]
    async fn the_status_of_one_that_ends_is_known() {
        let mut process = Process::spawn("sh", Command::new("sh").args(["-c", "exit 7"])).unwrap();
        let status = process.wait_for_exit(Duration::from_secs(5)).await.unwrap();
        assert_eq!(status.code(), Some(7));
        assert_eq!(process.stop().unwrap().code(), Some(7));
    }
}
