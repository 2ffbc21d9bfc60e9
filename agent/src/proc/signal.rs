//! Sends a signal to one process and never to another that has got its ID meanwhile.

use std::io;

use nudge_protocol::NotifySignal;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use super::table::{Process, start_time};

/// What became of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The process has it.
    Delivered,
    /// The process has ended before.
    Gone,
}

/// Why a signal was not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The operating system does not let this process signal that one.
    #[error(
        "process {pid} may not be signalled by user {own_uid}: run the agent as the process's user, give it the capability KILL, or allow it in the AppArmor or SELinux policy"
    )]
    PermissionDenied {
        /// The process.
        pid: i32,
        /// The agent's user.
        own_uid: u32,
    },
    /// Something else.
    #[error("process {pid} can't be signalled: {source}")]
    Io {
        /// The process.
        pid: i32,
        /// The refusal.
        source: io::Error,
    },
}

/// The operating system's signal.
pub fn number(signal: NotifySignal) -> Signal {
    match signal {
        NotifySignal::Usr1 => Signal::USR1,
        NotifySignal::Usr2 => Signal::USR2,
        NotifySignal::Hup => Signal::HUP,
    }
}

/// Sends `signal` to exactly `process`.
///
/// A pidfd names the process for good once its start time has been seen to be the right one. Where the kernel lacks
/// pidfds (before Linux 5.3) or a seccomp profile refuses them, the start time is read right before kill(2), which leaves
/// microseconds in which the process would have to end and its ID to go all the way round.
pub fn send(process: Process, signal: NotifySignal) -> Result<Sent, SendError> {
    let Some(pid) = Pid::from_raw(process.pid) else { return Ok(Sent::Gone) };
    let signal = number(signal);
    let opened = pidfd_open(pid, PidfdFlags::empty());
    if start_time(process.pid) != Some(process.started) {
        return Ok(Sent::Gone);
    }
    let sent = match opened {
        Ok(pidfd) => match pidfd_send_signal(pidfd, signal) {
            Err(Errno::NOSYS) => kill_process(pid, signal),
            sent => sent,
        },
        Err(_) => kill_process(pid, signal),
    };
    match sent {
        Ok(()) => Ok(Sent::Delivered),
        Err(Errno::SRCH) => Ok(Sent::Gone),
        Err(Errno::PERM) => {
            let own_uid = rustix::process::geteuid().as_raw();
            Err(SendError::PermissionDenied { pid: process.pid, own_uid })
        }
        Err(error) => Err(SendError::Io { pid: process.pid, source: error.into() }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::proc::{LiveTable, ProcessTable as _};

    #[test]
    fn a_process_with_another_start_time_is_another_process() {
        let mut child = Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().unwrap();
        let (process, _) = LiveTable::default().look(i32::try_from(child.id()).unwrap()).unwrap();
        let older = Process { started: process.started - 1, ..process };
        assert_eq!(send(older, NotifySignal::Usr1).unwrap(), Sent::Gone);
        assert!(child.try_wait().unwrap().is_none(), "SIGUSR1 would have ended it");
        assert_eq!(send(process, NotifySignal::Usr1).unwrap(), Sent::Delivered);
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGUSR1));
        assert_eq!(send(process, NotifySignal::Usr1).unwrap(), Sent::Gone);
    }
}
