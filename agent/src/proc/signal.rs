//! Sends a signal to one process, and never to a later one with the same ID.

use std::io;

use nudge_protocol::NotifySignal;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use super::proc_files::ProcessStatus;
use super::process_table::{LiveTable, Process, ProcessTable as _};

/// The outcome of sending a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// The process got the signal.
    Delivered,
    /// The process has ended, or has no handler any more.
    Gone,
}

/// The reason why a signal was not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The operating system does not allow the signal.
    #[error(
        "process {pid} may not be signalled by user {own_uid}: run the agent as the process's user, give it the capability KILL, or allow it in the AppArmor or SELinux policy"
    )]
    PermissionDenied {
        /// The ID of the process.
        pid: i32,
        /// The ID of the agent's user.
        own_uid: u32,
    },
    /// The operating system refused for another reason.
    #[error("process {pid} can't be signalled: {source}")]
    Io {
        /// The ID of the process.
        pid: i32,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// Converts a signal to the operating system's type.
pub fn to_os_signal(signal: NotifySignal) -> Signal {
    match signal {
        NotifySignal::Usr1 => Signal::USR1,
        NotifySignal::Usr2 => Signal::USR2,
        NotifySignal::Hup => Signal::HUP,
    }
}

/// Sends `signal` to exactly `process`.
///
/// A pidfd is opened first; then start time and handler are checked (a process that calls exec(2) keeps its ID and
/// loses its handlers). From then on the pidfd can't mean another process. Without pidfds, the start time is read right
/// before kill(2), so another process would have to get the same ID within microseconds. A process that calls exec(2)
/// after the check has no handler any more; nothing prevents that.
pub fn send(process: Process, signal: NotifySignal) -> Result<SendOutcome, SendError> {
    let Some(pid) = Pid::from_raw(process.pid) else { return Ok(SendOutcome::Gone) };
    let signal = to_os_signal(signal);
    let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => Some(pidfd),
        Err(error) if lacks_pidfds(error) => None,
        Err(error) => return to_outcome(process, Err(error)),
    };
    let is_same_and_catches =
        |(now, status): (Process, ProcessStatus)| now == process && status.catches(signal.as_raw());
    if !LiveTable::default().process(process.pid).is_some_and(is_same_and_catches) {
        return Ok(SendOutcome::Gone);
    }
    let result = match pidfd {
        Some(pidfd) => pidfd_send_signal(pidfd, signal),
        None => kill_process(pid, signal),
    };
    to_outcome(process, result)
}

/// Returns whether the error shows that there are no pidfds: the kernel has none (before Linux 5.3), or a seccomp
/// profile refuses them. All other errors concern the process alone, and kill(2) could reach another process.
fn lacks_pidfds(error: Errno) -> bool {
    matches!(error, Errno::NOSYS | Errno::PERM)
}

fn to_outcome(process: Process, result: Result<(), Errno>) -> Result<SendOutcome, SendError> {
    match result {
        Ok(()) => Ok(SendOutcome::Delivered),
        Err(Errno::SRCH) => Ok(SendOutcome::Gone),
        Err(Errno::PERM) => {
            let own_uid = rustix::process::geteuid().as_raw();
            Err(SendError::PermissionDenied { pid: process.pid, own_uid })
        }
        Err(error) => Err(SendError::Io { pid: process.pid, source: error.into() }),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// Starts a shell that prints when its trap is in place, and when it gets the signal.
    fn start_shell(script: &str) -> (Child, BufReader<std::process::ChildStdout>, Process) {
        let mut child =
            Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut String::new()).unwrap();
        let (process, _) = LiveTable::default().process(i32::try_from(child.id()).unwrap()).unwrap();
        (child, lines, process)
    }

    #[test]
    fn only_the_very_process_that_was_seen_is_signalled() {
        let (mut child, mut lines, process) = start_shell("trap 'echo notified' USR1; echo ready; read line");
        let older = Process { started: process.started - 1, ..process };
        assert_eq!(send(older, NotifySignal::Usr1).unwrap(), SendOutcome::Gone);
        assert_eq!(send(process, NotifySignal::Usr1).unwrap(), SendOutcome::Delivered);
        let mut line = String::new();
        drop(child.stdin.take());
        lines.read_line(&mut line).unwrap();
        assert_eq!(line, "notified\n");
        child.wait().unwrap();
        assert_eq!(send(process, NotifySignal::Usr1).unwrap(), SendOutcome::Gone);
    }

    #[test]
    fn kill_is_for_systems_without_pidfds_alone() {
        let refusals =
            [Errno::SRCH, Errno::INVAL, Errno::MFILE, Errno::NFILE, Errno::NODEV, Errno::NOMEM, Errno::ACCESS];
        assert!(refusals.into_iter().all(|error| !lacks_pidfds(error)));
        assert!(lacks_pidfds(Errno::NOSYS) && lacks_pidfds(Errno::PERM));
        let process = Process { pid: 1, started: 0 };
        assert_eq!(to_outcome(process, Err(Errno::SRCH)).unwrap(), SendOutcome::Gone);
        assert!(matches!(to_outcome(process, Err(Errno::PERM)), Err(SendError::PermissionDenied { .. })));
        assert!(matches!(to_outcome(process, Err(Errno::MFILE)), Err(SendError::Io { .. })));
    }

    #[test]
    fn a_process_without_a_handler_is_never_signalled() {
        let (mut child, _lines, process) = start_shell("echo ready; read line; exit 7");
        assert_eq!(send(process, NotifySignal::Usr1).unwrap(), SendOutcome::Gone);
        drop(child.stdin.take());
        assert_eq!(child.wait().unwrap().code(), Some(7));
    }
}
