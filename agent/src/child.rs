//! Runs one command as a child, the way an init does: signals are passed on, orphans are reaped, its end is ours.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::future::poll_fn;
use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::task::Poll;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, sigaction};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};
use nudge_protocol::NotifySignal;
use rustix::io::Errno;
use rustix::process::{WaitOptions, WaitStatus, wait};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::proc::{number, parse_status};

/// The agent itself failed, as with env(1), nohup(1) and timeout(1).
pub const EXIT_AGENT: u8 = 125;
/// The command was found and can't be run.
pub const EXIT_NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub const EXIT_NOT_FOUND: u8 = 127;

/// Why there is no child.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// The command does not exist.
    #[error("command {command:?} was not found")]
    NotFound {
        /// Its name.
        command: OsString,
        /// The refusal.
        source: io::Error,
    },
    /// The command can't be run.
    #[error("command {command:?} can't be run: {source}")]
    NotExecutable {
        /// Its name.
        command: OsString,
        /// The refusal.
        source: io::Error,
    },
    /// Signals can't be watched.
    #[error("signals can't be watched")]
    Signals(#[source] io::Error),
}

impl ChildError {
    /// The exit status that says so.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } => EXIT_NOT_FOUND,
            Self::NotExecutable { .. } => EXIT_NOT_EXECUTABLE,
            Self::Signals(_) => EXIT_AGENT,
        }
    }
}

/// Signals that come to the agent and are meant for the child.
const FORWARDED: [Signal; 6] =
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];

/// The signals of this process, watched from before the child starts, so that none is lost.
pub struct Signals {
    ended: Stream,
    continued: Stream,
    forwarded: Vec<(Signal, Stream)>,
    notification: Option<Signal>,
}

impl Signals {
    /// Begins to watch. The signal that is the child's `notification` is the agent's own to send: when it comes from elsewhere
    /// it is not passed on. Signals that are ignored already, as by nohup(1), stay ignored.
    pub fn watch(notification: Option<NotifySignal>) -> Result<Self, ChildError> {
        let stream = |desired: Signal| signal(SignalKind::from_raw(desired as i32)).map_err(ChildError::Signals);
        let own = fs::read("/proc/self/status").ok().and_then(|status| parse_status(&status).ok());
        let ignored = |desired: Signal| own.is_some_and(|own| own.ignores(desired as i32));
        let mut forwarded = Vec::new();
        for desired in FORWARDED.into_iter().filter(|&desired| !ignored(desired)) {
            forwarded.push((desired, stream(desired)?));
        }
        let notification = notification.and_then(|desired| Signal::try_from(number(desired).as_raw()).ok());
        Ok(Self { ended: stream(Signal::SIGCHLD)?, continued: stream(Signal::SIGCONT)?, forwarded, notification })
    }
}

/// The next of several signals.
async fn next(streams: &mut [(Signal, Stream)]) -> Signal {
    poll_fn(|context| {
        for (signal, stream) in &mut *streams {
            if stream.poll_recv(context).is_ready() {
                return Poll::Ready(*signal);
            }
        }
        Poll::Pending
    })
    .await
}

/// The running command.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    /// There is a terminal, and it may be given to the child: in a process group of its own, so that Ctrl-C reaches it once, not
    /// twice.
    terminal: bool,
}

impl Child {
    /// Starts the command with `variables` added to the environment. Orphans below it come to this process from now on.
    pub fn spawn(command: &[OsString], variables: Vec<(&'static str, String)>) -> Result<Self, ChildError> {
        let name = command.first().map_or(OsStr::new(""), OsString::as_os_str);
        // Without it orphans go to the machine's init, and descendants of the child could not be told from others.
        if let Err(error) = nix::sys::prctl::set_child_subreaper(true) {
            tracing::warn!(%error, "processes that the command leaves behind can't be adopted");
        }
        let spawned = Command::new(name).args(command.iter().skip(1)).envs(variables).process_group(0).spawn();
        let child = spawned.map_err(|source| {
            let command = name.to_owned();
            match source.kind() {
                io::ErrorKind::NotFound => ChildError::NotFound { command, source },
                _ => ChildError::NotExecutable { command, source },
            }
        })?;
        let pid = Pid::from_raw(child.id().cast_signed());
        let child = Self { pid, terminal: io::stdin().is_terminal() };
        // In a pipeline another process may be the one that reads from the terminal: there the child gets it when it asks.
        if io::stdout().is_terminal() {
            child.take_terminal();
        }
        Ok(child)
    }

    /// Passes signals on until the child ends, and returns its exit status, or 128 and the number of the signal that ended it.
    pub async fn wait(self, signals: &mut Signals) -> u8 {
        let Signals { ended, continued, forwarded, notification } = signals;
        loop {
            tokio::select! {
                _ = ended.recv() => {
                    if let Some(code) = self.reap() {
                        self.give_terminal_back();
                        return code;
                    }
                }
                _ = continued.recv() => self.resume(),
                signal = next(forwarded) => {
                    if *notification == Some(signal) {
                        tracing::warn!(%signal, "not passed on: it is the signal that tells of changes");
                    } else {
                        tracing::debug!(%signal, "passed on");
                        // It fails when the child has ended, which the next turn sees.
                        let _ = kill(self.pid, signal);
                    }
                }
            }
        }
    }

    /// Takes all ended processes; returns the child's status if it is among them.
    fn reap(&self) -> Option<u8> {
        let mut code = None;
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == self.pid.as_raw() => {
                    if let Some(signal) = status.stopping_signal() {
                        self.stopped(signal);
                    } else {
                        code = Some(exit_code(status));
                    }
                }
                Ok(None) | Err(Errno::CHILD) => return code,
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "can't wait for processes");
                    return code;
                }
            }
        }
    }

    /// The child was stopped, which matters on a terminal only.
    fn stopped(&self, signal: i32) {
        if !self.terminal {
            return;
        }
        let wants_terminal = signal == libc::SIGTTIN || signal == libc::SIGTTOU;
        if wants_terminal {
            self.take_terminal();
            if foreground() == Some(self.pid) {
                return self.go_on();
            }
        }
        // The agent stops too, so that the shell gets the terminal back.
        self.give_terminal_back();
        let _ = kill(Pid::from_raw(0), Signal::SIGTSTP);
        if !wants_terminal {
            // Where no shell could let the agent go on, the kernel has not stopped it (setpgid(2), orphaned process groups);
            // else the shell just has.
            self.resume();
        }
    }

    /// The shell lets the agent go on, in the foreground or (bg) not: so goes the child.
    fn resume(&self) {
        if self.terminal {
            self.take_terminal();
            self.go_on();
        }
    }

    /// Gives the terminal to the child if the agent has it: a job that the shell runs in the background does not.
    fn take_terminal(&self) {
        if self.terminal && foreground() == Some(getpgrp()) {
            to_foreground(self.pid);
        }
    }

    fn give_terminal_back(&self) {
        if self.terminal && foreground() == Some(self.pid) {
            to_foreground(getpgrp());
        }
    }

    fn go_on(&self) {
        // It fails when the child has ended, which the next turn sees.
        let _ = kill(Pid::from_raw(-self.pid.as_raw()), Signal::SIGCONT);
    }
}

/// The status to end with: the child's own, or 128 and the number of the signal that ended it, as shells have it.
fn exit_code(status: WaitStatus) -> u8 {
    let signal = status.terminating_signal().map(|signal| 128 + signal);
    signal.or(status.exit_status()).map_or(EXIT_AGENT, |code| code.to_le_bytes()[0])
}

/// The process group that has the terminal.
fn foreground() -> Option<Pid> {
    tcgetpgrp(io::stdin()).ok()
}

/// Gives the terminal to a process group. Without a terminal, or when another session has it, there is nothing to give.
fn to_foreground(group: Pid) {
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    // A background process that does this is stopped by SIGTTOU, unless it ignores that (tcsetpgrp(3)).
    // SAFETY: ignoring a signal installs no handler code; the agent has no other use of SIGTTOU.
    #[allow(unsafe_code)]
    let ignored = unsafe { sigaction(Signal::SIGTTOU, &ignore) };
    if ignored.is_ok() {
        let _ = tcsetpgrp(io::stdin(), group);
    }
}
