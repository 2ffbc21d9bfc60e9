//! The remains of a node on the machine; there must be none: processes, mounts, namespaces, control groups, interfaces,
//! files.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use nudge_tests::eventually_blocking;

/// The interface and the control groups of a node (`tests/node/common.sh`).
const NAME: &str = "nudge-node";

/// How long the kernel may take to clear up behind processes that are gone.
const CLEAN_UP_TIMEOUT: Duration = Duration::from_secs(10);

/// What a node is known by, noted while it is up.
pub(crate) struct Traces {
    state: PathBuf,
    namespaces: BTreeSet<u64>,
}

impl Traces {
    /// Notes all namespaces of the node's processes: of its own and of its pods.
    pub(crate) fn of(state: &Path) -> Result<Self> {
        let ours: BTreeSet<u64> = namespaces(Path::new("/proc/self")).collect();
        let first = fs::read_to_string(state.join("pid"))?;
        let first = first.split(' ').next().unwrap_or_default().to_owned();
        let processes = processes();
        let mut family = BTreeSet::from([first]);
        loop {
            let before = family.len();
            family.extend(
                processes
                    .iter()
                    .filter(|(_, parent)| family.contains(parent))
                    .map(|(id, _)| id.clone())
                    .collect::<Vec<_>>(),
            );
            if family.len() == before {
                break;
            }
        }
        let theirs = family.iter().flat_map(|id| namespaces(&Path::new("/proc").join(id)).collect::<Vec<_>>());
        let namespaces: BTreeSet<u64> = theirs.filter(|their| !ours.contains(their)).collect();
        ensure!(namespaces.len() >= 5, "the node has too few namespaces of its own: {namespaces:?}");
        let traces = Self { state: state.to_owned(), namespaces };
        let seen = traces.remaining();
        for kind in ["process ", "/sys/fs/cgroup/", "/sys/class/net/"] {
            ensure!(
                seen.iter().any(|one| one.starts_with(kind)),
                "of the node that is up, no {kind} is seen: {seen:?}"
            );
        }
        Ok(traces)
    }

    /// Fails if anything is left.
    pub(crate) fn gone(&self) -> Result<()> {
        let nothing = || Some(self.remaining()).filter(Vec::is_empty).map(drop);
        eventually_blocking(CLEAN_UP_TIMEOUT, "nothing is left", nothing)
            .map_err(|error| error.context(self.remaining().join("\n")))
    }

    fn remaining(&self) -> Vec<String> {
        let mut left = Vec::new();
        let state = self.state.display().to_string();
        for (id, _) in processes() {
            let folder = Path::new("/proc").join(&id);
            let command = fs::read(folder.join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            if namespaces(&folder).any(|namespace| self.namespaces.contains(&namespace)) || command.contains(&state) {
                left.push(format!("process {id}: {command}"));
            }
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let of_node = |line: &&str| {
            let namespace = line.split('[').nth(1).and_then(|rest| rest.split(']').next()?.parse().ok());
            line.contains(&state) || namespace.is_some_and(|one| self.namespaces.contains(&one))
        };
        left.extend(mounts.lines().filter(of_node).map(|line| format!("mount {line}")));
        let roots = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path());
        let groups = roots.map(|root| root.join(NAME)).chain([Path::new("/sys/fs/cgroup").join(NAME)]);
        let interface = Path::new("/sys/class/net").join(NAME);
        let files = groups.chain([interface, self.state.clone()]);
        left.extend(files.filter(|file| file.symlink_metadata().is_ok()).map(|file| file.display().to_string()));
        left
    }
}

/// Returns every process, with its parent.
fn processes() -> Vec<(String, String)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let process = |entry: fs::DirEntry| {
        let id = entry.file_name().into_string().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // A program's name, in brackets, may hold anything.
        let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?;
        id.bytes().all(|byte| byte.is_ascii_digit()).then(|| (id, parent.to_owned()))
    };
    entries.filter_map(process).collect()
}

/// Returns the numbers of a process's namespaces.
fn namespaces(process: &Path) -> impl Iterator<Item = u64> {
    let kinds = ["mnt", "net", "pid", "uts", "ipc"].map(|kind| process.join("ns").join(kind));
    kinds.into_iter().filter_map(|file| fs::metadata(file).ok()).map(|metadata| metadata.ino())
}
