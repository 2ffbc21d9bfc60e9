//! Tables of processes, and the kernel's own in `/proc`.

use std::fs::{self, File};
use std::io::Read as _;

use super::proc_files::{ProcessStatus, cgroup_names_container, parse_children, parse_start_time, parse_status};

/// A process. The start time distinguishes it from a later one with the same ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// The process ID.
    pub pid: i32,
    /// The start time, in clock ticks after boot.
    pub started: u64,
}

/// A table of processes. A process may end at any moment, so every answer may be empty.
pub trait ProcessTable {
    /// Returns the living children of `pid`, in order of their IDs.
    fn children(&mut self, pid: i32) -> Vec<i32>;
    /// Returns a process with its status.
    fn process(&mut self, pid: i32) -> Option<(Process, ProcessStatus)>;
}

/// The kernel's own table below `/proc`.
#[derive(Debug, Default)]
pub struct LiveTable {
    /// All processes with their parents, for kernels that lack `/proc/<pid>/task/<tid>/children`.
    scanned: Option<Vec<(i32, i32)>>,
}

impl LiveTable {
    /// Returns the processes of the container with this ID, with their parents.
    pub fn members(&self, id: &str) -> Vec<(i32, i32)> {
        let is_member = |pid: &i32| {
            read_file(&format!("/proc/{pid}/cgroup")).is_some_and(|content| cgroup_names_container(&content, id))
        };
        with_parents(process_ids().filter(is_member))
    }
}

impl ProcessTable for LiveTable {
    fn children(&mut self, pid: i32) -> Vec<i32> {
        // Reading the children of each thread is quick among thousands of other processes.
        if self.scanned.is_none()
            && let Some(children) = children_by_thread(pid)
        {
            return children;
        }
        let scanned = self.scanned.get_or_insert_with(|| with_parents(process_ids()));
        sorted(scanned.iter().filter(|(_, parent)| *parent == pid).map(|(child, _)| *child).collect())
    }

    fn process(&mut self, pid: i32) -> Option<(Process, ProcessStatus)> {
        let started = parse_start_time(&read_file(&format!("/proc/{pid}/stat"))?).ok()?;
        Some((Process { pid, started }, read_status(pid)?))
    }
}

fn read_status(pid: i32) -> Option<ProcessStatus> {
    parse_status(&read_file(&format!("/proc/{pid}/status"))?).ok()
}

/// Reads a file of `/proc`. The sizes of these files are not known before; one read mostly gives everything.
fn read_file(path: &str) -> Option<Vec<u8>> {
    let mut content = Vec::with_capacity(4096);
    File::open(path).ok()?.read_to_end(&mut content).ok()?;
    Some(content)
}

/// Returns the children by thread; `None` if the kernel has no such files.
fn children_by_thread(pid: i32) -> Option<Vec<i32>> {
    let mut children = Vec::new();
    // A process that has ended has no children.
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Some(children) };
    let mut has_file = false;
    for thread in threads.flatten() {
        // Reading fails if the thread has ended, or the kernel has no such file.
        if let Ok(content) = fs::read(thread.path().join("children")) {
            has_file = true;
            children.extend(parse_children(&content));
        }
    }
    has_file.then_some(sorted(children))
}

fn sorted(mut children: Vec<i32>) -> Vec<i32> {
    children.sort_unstable();
    children
}

/// Returns the IDs of all processes.
pub(super) fn process_ids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn with_parents(pids: impl Iterator<Item = i32>) -> Vec<(i32, i32)> {
    pids.filter_map(|pid| Some((pid, read_status(pid)?.parent))).collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn both_ways_find_the_same_children() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let own_pid = i32::try_from(std::process::id()).unwrap();
        let scanned = LiveTable { scanned: Some(with_parents(process_ids())) };
        for mut table in [scanned, LiveTable::default()] {
            assert!(table.children(own_pid).contains(&pid));
        }
        let (process, status) = LiveTable::default().process(pid).unwrap();
        assert_eq!((process.pid, status.parent), (pid, own_pid));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(LiveTable::default().process(pid), None);
    }
}
