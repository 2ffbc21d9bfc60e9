//! Cores: which ones this process may use, and keeping work on one of them.

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The cores on which a server and its load generator run, so that neither takes the other's time.
#[derive(Clone, Copy, Debug)]
pub struct Cores {
    /// The core of the server.
    pub server: usize,
    /// The core of the load generator, which is the server's on a machine with one core.
    pub load: usize,
}

impl Cores {
    /// Returns the first two cores that this thread may use.
    pub fn find() -> Result<Self> {
        let allowed = current()?;
        let mut cores = (0..CpuSet::count()).filter(|&core| allowed.is_set(core).unwrap_or(false));
        let server = cores.next().context("no core is allowed")?;
        Ok(Self { server, load: cores.next().unwrap_or(server) })
    }
}

/// Keeps the current thread, and every process it starts meanwhile, on one core until dropped.
#[derive(Debug)]
pub struct Pinned {
    before: CpuSet,
}

impl Pinned {
    /// Moves the current thread to `core`.
    pub fn to(core: usize) -> Result<Self> {
        let before = current()?;
        let mut only = CpuSet::new();
        only.set(core)?;
        sched_setaffinity(this_thread(), &only).with_context(|| format!("can't move to core {core}"))?;
        Ok(Self { before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // These cores were allowed a moment ago; if they no longer are, there is nothing better to go back to.
        let _ = sched_setaffinity(this_thread(), &self.before);
    }
}

fn current() -> Result<CpuSet> {
    sched_getaffinity(this_thread()).context("can't read which cores are allowed")
}

fn this_thread() -> Pid {
    Pid::from_raw(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_gets_its_cores_back() {
        let before = current().unwrap();
        let cores = Cores::find().unwrap();
        let pinned = Pinned::to(cores.load).unwrap();
        let mut only = CpuSet::new();
        only.set(cores.load).unwrap();
        assert_eq!(current().unwrap(), only);
        drop(pinned);
        assert_eq!(current().unwrap(), before);
    }
}
