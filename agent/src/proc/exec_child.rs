//! The command under `nudge-agent exec`, run the way an init does: signals are passed on, orphans are reaped, and the
//! agent ends with the command.

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

use super::{parse_status, to_os_signal};

/// The exit code for a failure of the agent itself, as with env(1), nohup(1) and timeout(1).
pub const EXIT_AGENT: u8 = 125;
/// The exit code for a command that was found and can't be run.
pub const EXIT_NOT_EXECUTABLE: u8 = 126;
/// The exit code for a command that was not found.
pub const EXIT_NOT_FOUND: u8 = 127;

/// The reason why the command does not run.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// The command does not exist.
    #[error("command {command:?} was not found")]
    NotFound {
        /// The program, as the command line names it.
        command: OsString,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The command can't be run.
    #[error("command {command:?} can't be run: {source}")]
    NotExecutable {
        /// The program, as the command line names it.
        command: OsString,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Signals can't be watched.
    #[error("signals can't be watched")]
    Signals(#[source] io::Error),
}

impl ChildError {
    /// Returns the exit code for this error, as in shells.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } => EXIT_NOT_FOUND,
            Self::NotExecutable { .. } => EXIT_NOT_EXECUTABLE,
            Self::Signals(_) => EXIT_AGENT,
        }
    }
}

/// The signals that the agent passes on to the child.
const FORWARDED_SIGNALS: [Signal; 6] =
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];

/// The signals of this process, watched from before the child starts, so that none is lost.
pub struct Signals {
    child_ends: Stream,
    continuations: Stream,
    forwarded: Vec<(Signal, Stream)>,
    notification: Option<Signal>,
}

impl Signals {
    /// Begins to watch. Only the agent sends the signal that notifies the child: one that comes from elsewhere is not
    /// passed on. Signals that are ignored already, as by nohup(1), stay ignored.
    pub fn watch(notification: Option<NotifySignal>) -> Result<Self, ChildError> {
        let stream = |watched: Signal| signal(SignalKind::from_raw(watched as i32)).map_err(ChildError::Signals);
        let status = fs::read("/proc/self/status").ok().and_then(|status| parse_status(&status).ok());
        let is_ignored = |signal: &Signal| status.is_some_and(|status| status.ignores(*signal as i32));
        let mut forwarded = Vec::new();
        for watched in FORWARDED_SIGNALS.into_iter().filter(|signal| !is_ignored(signal)) {
            forwarded.push((watched, stream(watched)?));
        }
        let notification = notification.and_then(|signal| Signal::try_from(to_os_signal(signal).as_raw()).ok());
        let (child_ends, continuations) = (stream(Signal::SIGCHLD)?, stream(Signal::SIGCONT)?);
        Ok(Self { child_ends, continuations, forwarded, notification })
    }
}

/// Waits for the next of several signals.
async fn next_signal(streams: &mut [(Signal, Stream)]) -> Signal {
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
    /// Whether there is a terminal to give to the child. The child has a process group of its own, so that Ctrl-C
    /// reaches it once, not twice.
    has_terminal: bool,
}

impl Child {
    /// Starts the command with `variables` added to the environment. This process adopts the orphans below it from now
    /// on.
    pub fn spawn(command: &[OsString], variables: Vec<(&'static str, String)>) -> Result<Self, ChildError> {
        let name = command.first().map_or(OsStr::new(""), OsString::as_os_str);
        // Otherwise the machine's init would adopt orphans, and the agent could not find them among other processes.
        if let Err(error) = nix::sys::prctl::set_child_subreaper(true) {
            tracing::warn!(%error, "orphans of the command can't be adopted; they get no signal");
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
        let child = Self { pid, has_terminal: io::stdin().is_terminal() };
        // In a pipeline another process may read from the terminal: the child gets the terminal when it needs it.
        if io::stdout().is_terminal() {
            child.give_terminal();
        }
        Ok(child)
    }

    /// Passes signals on until the child ends. Returns its exit status, or 128 plus the number of the signal that ended
    /// it.
    ///
    /// Cancel safe.
    pub async fn wait(&self, signals: &mut Signals) -> u8 {
        let Signals { child_ends, continuations, forwarded, notification } = signals;
        loop {
            tokio::select! {
                _ = child_ends.recv() => {
                    if let Some(code) = self.reap() {
                        self.take_terminal_back();
                        return code;
                    }
                }
                _ = continuations.recv() => self.resume(),
                signal = next_signal(forwarded) => {
                    if *notification == Some(signal) {
                        tracing::warn!(%signal, "signal not passed on: only the agent sends the signal that notifies of changes");
                    } else {
                        tracing::debug!(%signal, "signal passed on");
                        // The signal fails only if the child has ended; SIGCHLD reports that.
                        let _ = kill(self.pid, signal);
                    }
                }
            }
        }
    }

    /// Reaps all ended processes. Returns the child's exit status if it is among them.
    fn reap(&self) -> Option<u8> {
        let mut code = None;
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == self.pid.as_raw() => {
                    if let Some(signal) = status.stopping_signal() {
                        self.handle_stop(signal);
                    } else {
                        code = Some(exit_code(status));
                    }
                }
                Ok(None) | Err(Errno::CHILD) => return code,
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "waiting for processes failed");
                    return code;
                }
            }
        }
    }

    /// Handles a child that was stopped, which matters only on a terminal.
    fn handle_stop(&self, signal: i32) {
        if !self.has_terminal {
            return;
        }
        let wants_terminal = signal == libc::SIGTTIN || signal == libc::SIGTTOU;
        if wants_terminal {
            self.give_terminal();
            if foreground_group() == Some(self.pid) {
                return self.send_continue();
            }
        }
        // The agent stops too, so that the shell gets the terminal back.
        self.take_terminal_back();
        let _ = kill(Pid::from_raw(0), Signal::SIGTSTP);
        if !wants_terminal {
            // Either the shell has just continued the agent, or no shell could, and then the kernel has not stopped it
            // (setpgid(2), orphaned process groups).
            self.resume();
        }
    }

    /// Continues the child when the shell continues the agent, in the foreground or in the background.
    fn resume(&self) {
        if self.has_terminal {
            self.give_terminal();
            self.send_continue();
        }
    }

    /// Gives the terminal to the child if the agent has it; as a background job it has none.
    fn give_terminal(&self) {
        if self.has_terminal && foreground_group() == Some(getpgrp()) {
            set_foreground_group(self.pid);
        }
    }

    fn take_terminal_back(&self) {
        if self.has_terminal && foreground_group() == Some(self.pid) {
            set_foreground_group(getpgrp());
        }
    }

    fn send_continue(&self) {
        // The signal fails only if the child has ended; SIGCHLD reports that.
        let _ = kill(Pid::from_raw(-self.pid.as_raw()), Signal::SIGCONT);
    }
}

/// Returns the child's exit status, or 128 plus the number of the signal that ended it, as in shells.
fn exit_code(status: WaitStatus) -> u8 {
    let signal = status.terminating_signal().map(|signal| 128 + signal);
    signal.or(status.exit_status()).map_or(EXIT_AGENT, |code| code.to_le_bytes()[0])
}

/// Returns the process group that has the terminal.
fn foreground_group() -> Option<Pid> {
    tcgetpgrp(io::stdin()).ok()
}

/// Gives the terminal to a process group. Does nothing without a terminal, or when another session has it.
fn set_foreground_group(group: Pid) {
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    // A background process that calls tcsetpgrp(3) is stopped by SIGTTOU, unless it ignores that signal.
    // SAFETY: ignoring a signal installs no handler code; the agent has no other use of SIGTTOU.
    #[allow(unsafe_code)]
    let ignored = unsafe { sigaction(Signal::SIGTTOU, &ignore) };
    if ignored.is_ok() {
        let _ = tcsetpgrp(io::stdin(), group);
    }
}
