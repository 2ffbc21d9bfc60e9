//! Readings from `/proc`: memory, processor time, context switches, states, parents and descendants.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::unistd::{SysconfVar, sysconf};

/// Memory of a process that is in RAM, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// What belongs to this process alone: heap, stacks, written data.
    pub rss_anon: u64,
    /// That, and the pages of files such as its own code.
    pub vm_rss: u64,
    /// The most that `vm_rss` has been, since the start or since [`forget_peak`].
    pub peak: u64,
}

/// Memory of the process now.
pub fn memory(pid: i32) -> Result<Memory> {
    let path = format!("/proc/{pid}/status");
    let status = read(&path)?;
    let kib = |name| field(&status, name).with_context(|| format!("{path} has no {name}"));
    Ok(Memory { rss_anon: kib("RssAnon")? * 1024, vm_rss: kib("VmRSS")? * 1024, peak: kib("VmHWM")? * 1024 })
}

/// Begins again with the most memory that the process has had.
pub fn forget_peak(pid: i32) -> Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    fs::write(&path, "5").with_context(|| format!("can't write {path}"))
}

/// Returns how often the threads of the process have been put on a core again, by their own wish or not.
pub fn context_switches(pid: i32) -> Result<u64> {
    let tasks = format!("/proc/{pid}/task");
    let mut sum = 0;
    for task in fs::read_dir(&tasks).with_context(|| format!("can't list {tasks}"))? {
        // A thread that has ended meanwhile counts no more.
        let Ok(status) = fs::read_to_string(task?.path().join("status")) else { continue };
        sum += field(&status, "voluntary_ctxt_switches").unwrap_or(0);
        sum += field(&status, "nonvoluntary_ctxt_switches").unwrap_or(0);
    }
    Ok(sum)
}

/// Processor time of the process so far, its own code and the kernel's on its behalf; in steps of a clock tick (10 ms).
pub fn cpu_time(pid: i32) -> Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let stat = Stat::parse(&read(&path)?).with_context(|| format!("can't understand {path}"))?;
    let per_second = sysconf(SysconfVar::CLK_TCK)?.context("the system has no clock tick")?;
    let per_second = u32::try_from(per_second)?;
    Ok(Duration::from_secs(stat.ticks) / per_second)
}

/// Returns how many files, sockets and the like the process has open.
pub fn descriptors(pid: i32) -> Result<usize> {
    let open = format!("/proc/{pid}/fd");
    Ok(fs::read_dir(&open).with_context(|| format!("can't list {open}"))?.count())
}

/// Returns how many sockets the process has.
pub fn sockets(pid: i32) -> Result<usize> {
    let open = format!("/proc/{pid}/fd");
    let descriptors = fs::read_dir(&open).with_context(|| format!("can't list {open}"))?;
    // One that was closed meanwhile counts no more.
    let targets = descriptors.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    Ok(targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count())
}

/// Returns the state of the process in one letter (proc(5)); `None` if it is gone.
pub fn state(pid: i32) -> Option<char> {
    stat(pid).map(|stat| stat.state)
}

/// Returns whether all threads of the process stand still after SIGSTOP: each continues until it is put on a core, or
/// takes the signal there.
pub fn is_stopped(pid: i32) -> bool {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let state =
        |task: fs::DirEntry| Stat::parse(&fs::read_to_string(task.path().join("stat")).ok()?).map(|it| it.state);
    tasks.flatten().filter_map(state).all(|state| state == 'T')
}

/// Returns the process that has started it, or has taken it over; `None` if it is gone.
pub fn parent(pid: i32) -> Option<i32> {
    stat(pid).map(|stat| stat.parent)
}

fn stat(pid: i32) -> Option<Stat> {
    Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Returns the processes that `pid` has started, and those that they have, parents first.
pub fn descendants(pid: i32) -> Result<Vec<i32>> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in fs::read_dir("/proc").context("can't list /proc")? {
        let name = entry?.file_name();
        let Some(process) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process that has ended meanwhile is nobody's descendant.
        if let Some(stat) = stat(process) {
            children.entry(stat.parent).or_default().push(process);
        }
    }
    let mut descendants_found = children.remove(&pid).unwrap_or_default();
    let mut next = 0;
    while let Some(&process) = descendants_found.get(next) {
        descendants_found.extend(children.remove(&process).unwrap_or_default());
        next += 1;
    }
    Ok(descendants_found)
}

/// What is needed of `/proc/<pid>/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    parent: i32,
    ticks: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The second field is the program's name in parentheses and may itself hold spaces and parentheses.
        let (_, rest) = text.rsplit_once(')')?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let mut times = fields.skip(9);
        let user: u64 = times.next()?.parse().ok()?;
        let kernel: u64 = times.next()?.parse().ok()?;
        Some(Self { state, parent, ticks: user + kernel })
    }
}

/// Returns the number after `name:` in the format of `/proc/<pid>/status`.
fn field(status: &str, name: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.split_ascii_whitespace().next()?.parse().ok()
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("can't read {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_program_name_does_not_shift_the_fields() {
        let line = "42 (a) S 1 (b) R) S 7 42 42 0 -1 4194560 100 0 0 0 150 25 0 0 20 0 1 0 12345 0 0";
        assert_eq!(Stat::parse(line), Some(Stat { state: 'S', parent: 7, ticks: 175 }));
        assert_eq!(Stat::parse("42 (a"), None);
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let status = "VmRSS:\t    5120 kB\nnonvoluntary_ctxt_switches:\t3\nvoluntary_ctxt_switches:\t12\n";
        assert_eq!(field(status, "VmRSS"), Some(5120));
        assert_eq!(field(status, "voluntary_ctxt_switches"), Some(12));
        assert_eq!(field(status, "RssAnon"), None);
    }

    #[test]
    fn this_process_can_be_read() {
        let pid = nix::unistd::getpid().as_raw();
        let memory = memory(pid).unwrap();
        assert!(memory.rss_anon > 0 && memory.vm_rss >= memory.rss_anon && memory.peak >= memory.vm_rss);
        assert!(context_switches(pid).unwrap() > 0);
        cpu_time(pid).unwrap();
        descendants(pid).unwrap();
        assert_eq!(state(pid).map(|state| "RSD".contains(state)), Some(true));
        assert_eq!(parent(pid), Some(nix::unistd::getppid().as_raw()));
    }
}
