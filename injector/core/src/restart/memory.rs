//! The memory of a leader about one part of a rollout: which workloads can't be restarted, which it has restarted, how far their restarts had come,
//! and how many pods of each group were Ready before. The next leader starts without it: it tries once more, and waits again.

use std::collections::{BTreeSet, HashMap, VecDeque};

use k8s_openapi::jiff::Timestamp;
use nudge_api::RolloutStage;

use super::elapsed::has_elapsed;
use super::marks::Restarted;
use super::report::Report;
use super::workload::{PodRestarts, Progress, Steps, Workload};

/// The maximum of digests that are remembered of one object, one for each content of its configs in this part. When a forgotten restart is undone, it
/// is tried once more.
const DIGESTS: usize = 8;
/// After how many seconds a refused restart is tried again: somebody may have bound the missing role.
pub const RETRY_SECONDS: u32 = 10;

/// The part of the rollout that the memory belongs to. In another part it starts empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The stage.
    pub stage: Option<RolloutStage>,
    /// The version that workloads take.
    pub version: Option<String>,
}

/// The memory. Deleted objects are forgotten, so the objects of the namespace bound its size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// By uid.
    workloads: HashMap<String, OfWorkload>,
    /// Controllers without rolling updates, by their id ([`Group::id`](super::Group)).
    groups: HashMap<String, OfGroup>,
    /// When refusals were last forgotten.
    refused: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OfWorkload {
    refused: Option<Report>,
    /// The digests that restarts gave it, oldest first.
    digests: VecDeque<String>,
    watched: Option<Watched>,
}

/// A restart as this leader has seen it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Watched {
    mark: Restarted,
    /// When it last progressed, or was first seen.
    pub(super) progressed: Timestamp,
    /// The least that was left, and the farthest that it came since then. Who falls back and recovers has not progressed, so there is an end.
    done: (i32, i32),
    left: (i32, i32),
    /// Since when it is up. Unprobed: since when all pods are available and no container was started again.
    pub(super) complete: Option<Timestamp>,
    /// How often containers had been started again when it was first seen, and at the last look.
    restarts: Option<(PodRestarts, PodRestarts)>,
    /// Whether the restart has succeeded; later failures do not undo that.
    pub(super) settled: bool,
}

impl Watched {
    /// How often containers were started again in each of two pods; of a workload with one pod, in that.
    pub(super) fn restarts(&self, alone: bool) -> i32 {
        self.restarts.map_or(0, |(first, last)| if alone { last.most - first.most } else { last.second - first.second })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OfGroup {
    refused: Option<Report>,
    /// How many pods were Ready at the first look.
    ready: Option<usize>,
}

impl Memory {
    /// Returns whether the memory is empty.
    pub fn is_empty(&self) -> bool {
        self.workloads.is_empty() && self.groups.is_empty()
    }

    /// Forgets refusals that are old enough to try again. Called once for each look, so that nothing is tried twice in one.
    pub fn forget_refusals(&mut self, now: Timestamp) {
        if self.refused.is_none_or(|since| has_elapsed(since, RETRY_SECONDS, now)) {
            self.refused = Some(now);
            self.workloads.values_mut().for_each(|known| known.refused = None);
            self.groups.values_mut().for_each(|known| known.refused = None);
        }
    }

    /// Remembers that the workload can't be restarted.
    pub fn refuse(&mut self, workload: &Workload, report: Report) {
        self.workloads.entry(workload.uid.clone()).or_default().refused = Some(report);
    }

    /// Returns why the workload is not restarted.
    pub fn refused(&self, workload: &Workload) -> Option<&Report> {
        self.workloads.get(&workload.uid)?.refused.as_ref()
    }

    /// Remembers that a restart gave this workload the digest.
    pub fn restarted(&mut self, workload: &Workload, digest: &str) {
        let digests = &mut self.workloads.entry(workload.uid.clone()).or_default().digests;
        digests.retain(|known| known != digest);
        if digests.len() == DIGESTS {
            digests.pop_front();
        }
        digests.push_back(digest.to_owned());
    }

    /// Returns whether a restart gave this workload the digest. If the workload lacks the digest now, somebody has undone the restart.
    pub fn was_restarted(&self, workload: &Workload, digest: &str) -> bool {
        self.workloads.get(&workload.uid).is_some_and(|known| known.digests.iter().any(|known| known == digest))
    }

    /// Looks at the last restart of a workload, which may be that of another config.
    pub fn watch(&mut self, workload: &Workload, settle: u32, now: Timestamp) {
        let Some(mark) = workload.mark() else { return };
        let watched = &mut self.workloads.entry(workload.uid.clone()).or_default().watched;
        let watched = match watched {
            Some(watched) if watched.mark == *mark => watched,
            _ => watched.insert(Watched {
                mark: mark.clone(),
                progressed: now,
                done: Steps::default().done(),
                left: (i32::MAX, i32::MAX),
                complete: None,
                restarts: None,
                settled: false,
            }),
        };
        if let Some(steps) = workload.steps {
            let (done, left) = (steps.done(), steps.left());
            if left < watched.left || done > watched.done {
                (watched.done, watched.left, watched.progressed) = (done, left.min(watched.left), now);
            }
        }
        let again = match (workload.restarts, &mut watched.restarts) {
            (Some(count), Some((_, last))) => count.all > std::mem::replace(last, count).all,
            (Some(count), none) => {
                *none = Some((count, count));
                false
            }
            (None, _) => false,
        };
        // A probe, `minReadySeconds` or a wait of zero leaves it all to the workload's controller.
        let settle = workload.settle_seconds(settle);
        let up = match workload.progress_since(mark) {
            Progress::Complete => settle == 0 || !again || mark.before.is_some(),
            Progress::Ended => settle == 0 || mark.before.is_some(),
            Progress::Moving | Progress::Failed => false,
        };
        if up {
            let complete = *watched.complete.get_or_insert(now);
            watched.settled |= has_elapsed(complete, settle, now);
        } else {
            watched.complete = None;
        }
    }

    pub(super) fn watched(&self, workload: &Workload, mark: &Restarted) -> Option<&Watched> {
        self.workloads.get(&workload.uid)?.watched.as_ref().filter(|watched| watched.mark == *mark)
    }

    /// Returns whether the workload has come up after its last restart, whatever happens later.
    pub fn has_settled(&self, workload: &Workload) -> bool {
        let watched = workload.mark().and_then(|mark| self.watched(workload, mark));
        watched.is_some_and(|watched| watched.settled)
    }

    /// Returns when a restart of the stage that began at `since` last progressed.
    pub fn progressed(&self, since: Timestamp) -> Option<Timestamp> {
        let watched = self.workloads.values().filter_map(|known| known.watched.as_ref());
        watched.filter(|watched| watched.mark.at >= since).map(|watched| watched.progressed).max()
    }

    /// Remembers that pods of this group can't be evicted.
    pub fn refuse_group(&mut self, id: String, report: Report) {
        self.groups.entry(id).or_default().refused = Some(report);
    }

    /// Returns why pods of this group are not evicted.
    pub fn refused_group(&self, id: &str) -> Option<&Report> {
        self.groups.get(id)?.refused.as_ref()
    }

    /// Returns whether the memory has any group.
    pub fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Returns how many pods of this group were Ready at the first look. A new leader may count fewer, and then blames the version too little.
    pub fn ready_before(&mut self, id: &str, now: usize) -> usize {
        *self.groups.entry(id.to_owned()).or_default().ready.get_or_insert(now)
    }

    /// Forgets workloads that are not among these, the existing ones.
    pub fn keep_workloads<'a>(&mut self, there: impl Iterator<Item = &'a Workload>) {
        let there: BTreeSet<&str> = there.map(|workload| workload.uid.as_str()).collect();
        self.workloads.retain(|uid, _| there.contains(uid.as_str()));
    }

    /// Forgets groups that are not among these, the existing ones with or without pods.
    pub fn keep_groups<'a>(&mut self, there: impl Iterator<Item = &'a str>) {
        let there: BTreeSet<&str> = there.collect();
        self.groups.retain(|id, _| there.contains(id.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use nudge_api::Reason;

    use super::super::tests::workload;
    use super::*;

    /// The Deployment `web`, or another one of that name.
    fn web(uid: &str) -> Workload {
        Workload { uid: uid.to_owned(), ..workload("web") }
    }

    fn report() -> Report {
        Report::new(Reason::Refused, "Deployment/web", "no")
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
    fn a_refusal_and_a_restart_belong_to_one_object() {
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
    fn deleted_objects_are_forgotten() {
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
