//! The floor under a switch: one process that watches a folder and signals its child, with nothing in between.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::signal::Signal;
use nudge_protocol::names::CURRENT;
use nudge_tests::Process;

use crate::subscriber;

/// The hidden command that runs the floor.
pub(crate) const NAME: &str = "floor";

/// Signals a subscriber whenever another link becomes `current` in `folder`; runs until it is ended.
pub(crate) fn run(folder: &Path, pipe: &Path) -> Result<()> {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC)?;
    let watch = inotify.add_watch(folder, AddWatchFlags::IN_MOVED_TO);
    watch.with_context(|| format!("can't watch {}", folder.display()))?;

    let bench = std::env::current_exe().context("can't find this program's file")?;
    let child = Process::spawn("the subscriber", Command::new(bench).arg(subscriber::NAME).arg(pipe))?;
    loop {
        for event in inotify.read_events().context("can't read events")? {
            if event.name.as_deref() == Some(OsStr::new(CURRENT)) {
                child.signal(Signal::SIGUSR1)?;
            }
        }
    }
}
