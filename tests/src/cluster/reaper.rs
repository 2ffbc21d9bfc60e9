//! Sees to it that nothing of a cluster outlives the test process, however that ends.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// Waits for the end of its input, which comes with the end of the test process and no sooner, and then kills its
/// process group and removes the folder. The second shell is in a session of its own, so that it is left when all
/// others are gone; it tries again because a dying process may still write.
const SCRIPT: &str = r#"
read -r _
setsid sh -c '
    kill -s KILL -- "-$1"
    tries=0
    until rm -rf -- "$2" 2>/dev/null || [ "$((tries += 1))" -gt 50 ]; do sleep 0.1; done
' sh "$$" "$0"
"#;

/// A process that does nothing as long as the test process lives. Neither a destructor nor a signal handler could do
/// this: a static is never dropped, and SIGKILL can't be handled.
#[derive(Debug)]
pub(super) struct Reaper {
    child: Child,
}

impl Reaper {
    /// Guards `folder` and every process of the new group.
    pub(super) fn start(folder: &Path) -> Result<Self> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(SCRIPT).arg(folder).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { child: command.spawn().context("can't start the cluster's guard")? })
    }

    /// Returns the process group whose members end with the test process.
    pub(super) fn group(&self) -> i32 {
        self.child.id().cast_signed()
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        // The owner that drops it has ended the processes of the group and removes the folder: nothing is left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;
    use crate::{Process, eventually_blocking};

    #[test]
    fn the_end_of_the_owner_ends_the_group_and_removes_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "text").unwrap();
        let mut reaper = Reaper::start(folder.path()).unwrap();
        let mut command = Command::new("sleep");
        let mut member = Process::spawn("sleep", command.arg("60").process_group(reaper.group())).unwrap();
        member.signal(nix::sys::signal::Signal::SIGSTOP).unwrap();
        assert!(member.try_exited().unwrap().is_none());

        drop(reaper.child.stdin.take());
        let ended = eventually_blocking(Duration::from_secs(10), "it ends", || member.try_exited().transpose());
        assert!(!ended.unwrap().unwrap().success());
        let gone = || (!folder.path().exists()).then_some(());
        eventually_blocking(Duration::from_secs(10), "the folder goes", gone).unwrap();
    }
}
