//! What a leader remembers in one part of a rollout, so that it does not begin again at each look: what can't be restarted, what it has
//! restarted, and how well groups of pods were before. Pure. The next leader does not know it: it tries once more, and looks anew.

use std::collections::{BTreeSet, HashMap, VecDeque};

use k8s_openapi::jiff::Timestamp;
use nudge_api::RolloutStage;

use super::next::{Report, over};
use super::workload::Workload;

/// Digests of one object that are remembered. There is one for each content of its configs that came up in this part; of one that is
/// forgotten an undone restart is tried once more.
const DIGESTS: usize = 8;
/// How long a refusal counts, in seconds: somebody may bind the role that was missing.
pub const RETRY_SECONDS: u32 = 10;

/// What is remembered belongs to this part of the rollout: in another one all is looked at anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// What the rollout is doing.
    pub stage: Option<RolloutStage>,
    /// The version that is to be taken.
    pub version: Option<String>,
}

/// See the module's text. Of what is not there any more nothing is kept, so that it is bounded by what the namespace holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// By uid.
    workloads: HashMap<String, OfWorkload>,
    /// Controllers without rolling updates, by their id ([`Group::id`](super::Group)).
    groups: HashMap<String, OfGroup>,
    /// Since when refusals count.
    refused: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OfWorkload {
    refused: Option<Report>,
    /// It has had these by restarts, the oldest first.
    digests: VecDeque<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OfGroup {
    refused: Option<Report>,
    /// Pods that were Ready at the first look.
    ready: Option<usize>,
}

impl Memory {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.workloads.is_empty() && self.groups.is_empty()
    }

    /// Forgets refusals that have stood for long enough to try once more. Once for each look: what is refused while it lasts is not tried twice.
    pub fn forget_refusals(&mut self, now: Timestamp) {
        if self.refused.is_none_or(|since| over(since, RETRY_SECONDS, now)) {
            self.refused = Some(now);
            self.workloads.values_mut().for_each(|known| known.refused = None);
            self.groups.values_mut().for_each(|known| known.refused = None);
        }
    }

    /// The workload can't be restarted.
    pub fn refuse(&mut self, workload: &Workload, report: Report) {
        self.workloads.entry(workload.uid.clone()).or_default().refused = Some(report);
    }

    /// Why the workload is not restarted.
    pub fn refused(&self, workload: &Workload) -> Option<&Report> {
        self.workloads.get(&workload.uid)?.refused.as_ref()
    }

    /// This workload has the digest by a restart.
    pub fn restarted(&mut self, workload: &Workload, digest: &str) {
        let digests = &mut self.workloads.entry(workload.uid.clone()).or_default().digests;
        digests.retain(|known| known != digest);
        if digests.len() == DIGESTS {
            digests.pop_front();
        }
        digests.push_back(digest.to_owned());
    }

    /// Whether this workload had the digest by a restart: seen without it, somebody has undone that.
    pub fn was_restarted(&self, workload: &Workload, digest: &str) -> bool {
        self.workloads.get(&workload.uid).is_some_and(|known| known.digests.iter().any(|known| known == digest))
    }

    /// Pods of this group can't be evicted, or not any more.
    pub fn refuse_group(&mut self, id: String, report: Report) {
        self.groups.entry(id).or_default().refused = Some(report);
    }

    /// Why pods of this group are not evicted.
    pub fn refused_group(&self, id: &str) -> Option<&Report> {
        self.groups.get(id)?.refused.as_ref()
    }

    /// Whether pods were evicted, or looked at for it.
    pub fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    /// How many pods of this group were Ready at the first look. The next leader compares with what it finds: it blames rather too little.
    pub fn ready_before(&mut self, id: &str, now: usize) -> usize {
        *self.groups.entry(id.to_owned()).or_default().ready.get_or_insert(now)
    }

    /// Forgets workloads that are not among these, which are all that there are.
    pub fn keep_workloads<'a>(&mut self, there: impl Iterator<Item = &'a Workload>) {
        let there: BTreeSet<&str> = there.map(|workload| workload.uid.as_str()).collect();
        self.workloads.retain(|uid, _| there.contains(uid.as_str()));
    }

    /// Forgets groups that are not among these, which are all that there are, with pods or without.
    pub fn keep_groups<'a>(&mut self, there: impl Iterator<Item = &'a str>) {
        let there: BTreeSet<&str> = there.collect();
        self.groups.retain(|id, _| there.contains(id.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::workload;
    use super::*;

    /// The Deployment `web`, or another one of that name.
    fn web(uid: &str) -> Workload {
        Workload { uid: uid.to_owned(), ..workload("web") }
    }

    fn report() -> Report {
        Report { word: "Refused", message: "no".to_owned(), object: "Deployment/web".to_owned() }
    }

    #[test]
    fn the_first_look_at_a_group_counts_and_is_no_refusal() {
        let mut memory = Memory::default();
        assert_eq!((memory.ready_before("ReplicaSet/web", 3), memory.ready_before("ReplicaSet/web", 1)), (3, 3));
        assert_eq!(memory.ready_before("ReplicaSet/other", 0), 0);
        assert_eq!(memory.refused_group("ReplicaSet/web"), None);
        memory.refuse_group("ReplicaSet/web".to_owned(), report());
        assert_eq!(memory.refused_group("ReplicaSet/web"), Some(&report()));
        assert_eq!(memory.clone().ready_before("ReplicaSet/web", 2), 3);
    }

    #[test]
    fn a_refusal_and_a_restart_are_of_one_object_and_do_not_touch() {
        let (mut memory, web, anew) = (Memory::default(), web("1"), web("2"));
        memory.restarted(&web, "d");
        assert_eq!(memory.refused(&web), None);
        memory.refuse(&web, report());
        assert_eq!(memory.refused(&web), Some(&report()));
        assert!(memory.was_restarted(&web, "d") && !memory.was_restarted(&web, "e"));
        assert_eq!((memory.refused(&anew), memory.was_restarted(&anew, "d")), (None, false), "another of that name");
    }

    #[test]
    fn a_refusal_is_tried_again_after_a_while_and_nothing_else_is_forgotten() {
        let (mut memory, web) = (Memory::default(), web("1"));
        let forget = |memory: &mut Memory, second| memory.forget_refusals(Timestamp::from_second(second).unwrap());
        forget(&mut memory, 100);
        memory.refuse(&web, report());
        memory.refuse_group("ReplicaSet/web".to_owned(), report());
        memory.restarted(&web, "d");
        forget(&mut memory, 109);
        assert!(memory.refused(&web).is_some() && memory.refused_group("ReplicaSet/web").is_some());
        forget(&mut memory, 110);
        assert!(memory.refused(&web).is_none() && memory.refused_group("ReplicaSet/web").is_none());
        assert!(memory.was_restarted(&web, "d"));
    }

    #[test]
    fn it_holds_no_more_than_what_is_there() {
        let (mut memory, web, other) = (Memory::default(), web("1"), web("2"));
        for number in 0..100 {
            memory.restarted(&web, &format!("digest-{number}"));
            memory.restarted(&web, "again");
        }
        assert_eq!(memory.workloads[&web.uid].digests.len(), DIGESTS);
        assert!(memory.was_restarted(&web, "digest-99") && memory.was_restarted(&web, "again"));
        memory.refuse(&other, report());
        memory.keep_workloads([&other].into_iter());
        assert!(!memory.was_restarted(&web, "again") && memory.refused(&other).is_some());
        memory.ready_before("ReplicaSet/web", 3);
        memory.ready_before("ReplicaSet/old", 3);
        memory.keep_groups(["ReplicaSet/web"].into_iter());
        assert_eq!((memory.ready_before("ReplicaSet/web", 1), memory.ready_before("ReplicaSet/old", 1)), (3, 1));
        memory.keep_workloads([].into_iter());
        memory.keep_groups([].into_iter());
        assert!(memory.is_empty());
    }
}
