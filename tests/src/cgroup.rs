//! A control group of a test's own, named like a container's, for machines that allow tests to create it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::eventually_blocking;
use crate::tools::skipped;

/// Hierarchies in which one may be made: any of version 1 that limits nothing by itself, and the one of version 2.
const ROOTS: [&str; 4] = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/freezer", "/sys/fs/cgroup"];
/// The roots of the hierarchy of version 2: alone, or together with those of version 1.
const ROOTS_V2: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// A group, which goes with its value once its processes have gone.
#[derive(Debug)]
pub struct Cgroup {
    folder: PathBuf,
}

impl Cgroup {
    /// Makes a group with this name; says why not if that can't be done.
    pub fn new(name: &str) -> Option<Self> {
        let group = ROOTS.iter().find_map(|root| Self::at(Path::new(root).join(name)));
        if group.is_none() {
            skipped("no control group can be made here");
        }
        group
    }

    /// Returns the same in the hierarchy of version 2.
    pub fn new_v2(name: &str) -> Option<Self> {
        let roots = ROOTS_V2.iter().map(Path::new).filter(|root| root.join("cgroup.controllers").is_file());
        let group = roots.into_iter().find_map(|root| Self::at(root.join(name)));
        if group.is_none() {
            skipped("no control group of version 2 can be made here");
        }
        group
    }

    /// Makes a group below this one.
    pub fn below(&self, name: &str) -> Option<Self> {
        Self::at(self.folder.join(name))
    }

    fn at(folder: PathBuf) -> Option<Self> {
        let group = fs::create_dir(&folder).ok().map(|()| Self { folder })?;
        group.folder.join("cgroup.procs").is_file().then_some(group)
    }

    /// Returns the file that takes processes.
    pub fn processes(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    /// Moves a process into the group.
    pub fn take(&self, pid: i32) -> std::io::Result<()> {
        fs::write(self.processes(), pid.to_string())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The kernel may take a moment to forget a process that has ended.
        let gone = || fs::remove_dir(&self.folder).is_ok().then_some(());
        let _ = eventually_blocking(Duration::from_secs(5), "the group can be removed", gone);
    }
}
