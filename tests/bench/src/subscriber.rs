//! The application of the benchmarks: it catches SIGUSR1 and writes to a pipe when its handler was entered.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::sys::stat::Mode;
use nix::unistd::{mkfifo, write};
use nudge_tests::clock::Monotonic;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::{OpenOptions as PipeOptions, Receiver};
use tokio::time::timeout;

/// The hidden command that runs a subscriber.
pub(crate) const NAME: &str = "subscriber";

/// The pipe, where the handler finds it.
static REPORTS: OnceLock<File> = OnceLock::new();

/// Reports that it runs since `started`, then each signal; ends when nobody reads the pipe any more.
pub(crate) fn run(pipe: &Path, started: Monotonic) -> Result<()> {
    let pipe = OpenOptions::new().write(true).open(pipe).with_context(|| format!("can't open {}", pipe.display()))?;
    let pipe = REPORTS.get_or_init(|| pipe);
    catch(Signal::SIGUSR1)?;
    write(pipe, &started.to_bytes())?;
    loop {
        // No event is requested: the only one that comes unasked is the loss of the reader.
        match poll(&mut [PollFd::new(pipe.as_fd(), PollFlags::empty())], PollTimeout::NONE) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("can't wait"),
        }
    }
}

extern "C" fn report(_signal: i32) {
    let entered = Monotonic::now();
    let interrupted = Errno::last_raw();
    if let Some(pipe) = REPORTS.get() {
        // Without a reader the process ends by itself.
        let _ = write(pipe, &entered.to_bytes());
    }
    Errno::set_raw(interrupted);
}

/// Installs the handler.
#[allow(unsafe_code)]
fn catch(signal: Signal) -> Result<()> {
    let action = SigAction::new(SigHandler::Handler(report), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler reads a clock and an initialised cell, writes to a pipe and restores errno. None of these
    // locks or allocates, so it may interrupt anything.
    unsafe { sigaction(signal, &action) }.with_context(|| format!("can't catch {signal}"))?;
    Ok(())
}

/// The reading end of a subscriber's pipe.
pub(crate) struct Reports {
    path: PathBuf,
    pipe: Receiver,
}

impl Reports {
    /// Makes the pipe at `path`.
    pub(crate) fn create(path: PathBuf) -> Result<Self> {
        mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).with_context(|| format!("can't make {}", path.display()))?;
        // Open for writing too, so that the pipe has no end before its first writer.
        let pipe = PipeOptions::new().read_write(true).open_receiver(&path);
        let pipe = pipe.with_context(|| format!("can't open {}", path.display()))?;
        Ok(Self { path, pipe })
    }

    /// Returns the command of the subscriber that reports here.
    pub(crate) fn subscriber(&self) -> Result<Vec<PathBuf>> {
        let bench = std::env::current_exe().context("can't find this program's file")?;
        Ok(vec![bench, NAME.into(), self.path.clone()])
    }

    /// Returns the pipe's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the next report: first that it runs, then one for each signal.
    pub(crate) async fn next(&mut self, within: Duration) -> Result<Monotonic> {
        let mut bytes = [0; Monotonic::BYTES];
        let read = timeout(within, self.pipe.read_exact(&mut bytes)).await;
        read.map_err(|_| anyhow!("the subscriber reported nothing within {within:?}"))??;
        Ok(Monotonic::from_bytes(bytes))
    }

    /// Takes the reports that came unasked, and says how many they were.
    pub(crate) fn drain(&self) -> usize {
        let mut bytes = [0; Monotonic::BYTES];
        let mut count = 0;
        while self.pipe.try_read(&mut bytes).is_ok_and(|read| read > 0) {
            count += 1;
        }
        count
    }
}
