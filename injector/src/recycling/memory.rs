//! What a leader remembers in one part of a rollout, so that it does not begin again at each look: what can't be restarted, what it has
//! restarted, and how well groups of pods were before. Pure. The next leader does not know it: it tries once more, and looks anew.

use std::collections::BTreeMap;

use super::next::Report;
use super::workload::Workload;

/// Reports by what they are about. Names of objects and digests have no spaces, so that no two of these are the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory(BTreeMap<String, Report>);

impl From<BTreeMap<String, Report>> for Memory {
    fn from(kept: BTreeMap<String, Report>) -> Self {
        Self(kept)
    }
}

impl From<Memory> for BTreeMap<String, Report> {
    fn from(memory: Memory) -> Self {
        memory.0
    }
}

impl Memory {
    /// The object with this id can't be restarted, or not any more.
    pub fn refuse(&mut self, id: String, report: Report) {
        self.0.insert(id, report);
    }

    /// Why the object with this id is not restarted.
    pub fn refused(&self, id: &str) -> Option<&Report> {
        self.0.get(id)
    }

    /// How many pods of this group were Ready at the first look. The next leader compares with what it finds: it blames rather too little.
    pub fn ready_before(&mut self, id: &str, now: usize) -> usize {
        let known = self.0.entry(format!("ready {id}")).or_insert_with(|| Report::new("Ready", now.to_string()));
        known.sentence.parse().unwrap_or(now)
    }

    /// This object has the digest by a restart.
    pub fn restarted(&mut self, workload: &Workload, digest: &str) {
        self.0.insert(of_restart(workload, digest), Report::undone(&workload.id()));
    }

    /// What is told if this object had the digest by a restart and is seen without it.
    pub fn undone(&self, workload: &Workload, digest: &str) -> Option<&Report> {
        self.0.get(&of_restart(workload, digest))
    }
}

fn of_restart(workload: &Workload, digest: &str) -> String {
    format!("restarted {} {digest}", workload.uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_look_at_a_group_counts_and_is_no_refusal() {
        let mut memory = Memory::default();
        assert_eq!((memory.ready_before("ReplicaSet/web", 3), memory.ready_before("ReplicaSet/web", 1)), (3, 3));
        assert_eq!(memory.ready_before("ReplicaSet/other", 0), 0);
        assert_eq!(memory.refused("ReplicaSet/web"), None);
        let mut kept = Memory::from(BTreeMap::from(memory));
        assert_eq!(kept.ready_before("ReplicaSet/web", 2), 3);
    }
}
