//! The leader's memory of its restarts in one part of a rollout: which workloads can't be restarted, which it has
//! restarted, the progress of their restarts, and how many pods of each group were Ready before. The next leader starts
//! without this memory: it tries once more, and waits again.

use std::collections::{BTreeSet, HashMap, VecDeque};

use k8s_openapi::jiff::Timestamp;
use nudge_api::RolloutStage;

use super::annotations::{ContentDigest, RestartMark};
use super::elapsed::has_elapsed;
use super::known_contents::KnownContents;
use super::object_report::ObjectReport;
use super::workload::{PodRestarts, ReplicaCounts, Workload, WorkloadProgress};
use crate::owners::WorkloadId;

/// The maximum number of restarts of one workload that are remembered, by the content that they were for. If a
/// forgotten restart is undone, it is tried once more.
const MAX_DIGESTS: usize = 8;
/// The wait in seconds until a refused restart is tried again: somebody may have bound the missing role.
pub const RETRY_SECONDS: u32 = 10;

/// The part of a rollout that a memory belongs to. In another part the memory starts empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RolloutPart {
    /// The stage of the rollout; `None` while nothing moves.
    pub stage: Option<RolloutStage>,
    /// The version that workloads take.
    pub version: Option<String>,
}

/// The leader's memory of its restarts. Deleted objects are forgotten, so the objects of the namespace bound its size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestartAttempts {
    /// The workloads, by their uid.
    workloads: HashMap<String, WorkloadAttempts>,
    /// The controllers without rolling updates, by [`PodGroup::id`](super::PodGroup).
    groups: HashMap<WorkloadId, GroupAttempts>,
    /// The time when refusals were last forgotten.
    forgotten_at: Option<Timestamp>,
    /// The contents of parts that were read.
    pub contents: KnownContents,
    /// The workloads whose pods read nothing at their start that the move changes.
    pub unaffected: BTreeSet<WorkloadId>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct WorkloadAttempts {
    refusal: Option<ObjectReport>,
    /// The digests that restarts gave the workload, the oldest first.
    digests: VecDeque<ContentDigest>,
    watched: Option<WatchedRestart>,
}

/// A restart as this leader has seen it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WatchedRestart {
    mark: RestartMark,
    /// The time when the restart last progressed, or was first seen.
    pub(super) progressed_at: Timestamp,
    /// The best progress since then. A workload that falls back and recovers has made no progress, so the wait ends.
    best: RestartCounts,
    /// The time when the workload came up. If it is unprobed, the time when all pods were available and after which no
    /// container was started again.
    up_since: Option<Timestamp>,
    /// The restarts of containers when the restart was first seen, and when it was last seen.
    restarts: Option<(PodRestarts, PodRestarts)>,
    /// Whether the restart has succeeded; later failures do not undo that.
    pub(super) settled: bool,
}

/// The progress of a restart; each pair is compared by its first number, and then by its second number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RestartCounts {
    /// The maximum of the finished part.
    done: (i32, i32),
    /// The minimum of the remaining part.
    left: (i32, i32),
}

impl WatchedRestart {
    /// Returns how often containers were started again in each of at least two pods, or in the only pod of a workload
    /// with one pod.
    pub(super) fn restarts(&self, has_one_pod: bool) -> i32 {
        let count = |restarts: PodRestarts| if has_one_pod { restarts.max } else { restarts.second };
        self.restarts.map_or(0, |(first, last)| count(last) - count(first))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct GroupAttempts {
    refusal: Option<ObjectReport>,
    /// The number of pods that were Ready when this leader first looked.
    ready: Option<usize>,
}

impl RestartAttempts {
    /// Returns whether the memory is empty.
    pub fn is_empty(&self) -> bool {
        self.workloads.is_empty() && self.groups.is_empty()
    }

    /// Forgets refusals after [`RETRY_SECONDS`]. The controller calls this once a reconciliation, so that nothing is
    /// tried twice in one reconciliation.
    pub fn forget_refusals(&mut self, now: Timestamp) {
        if self.forgotten_at.is_none_or(|since| has_elapsed(since, RETRY_SECONDS, now)) {
            self.forgotten_at = Some(now);
            self.workloads.values_mut().for_each(|attempts| attempts.refusal = None);
            self.groups.values_mut().for_each(|attempts| attempts.refusal = None);
        }
    }

    /// Remembers that the workload can't be restarted.
    pub fn note_refusal(&mut self, workload: &Workload, report: ObjectReport) {
        self.workloads.entry(workload.uid.clone()).or_default().refusal = Some(report);
    }

    /// Returns why the workload is not restarted.
    pub fn refusal(&self, workload: &Workload) -> Option<&ObjectReport> {
        self.workloads.get(&workload.uid)?.refusal.as_ref()
    }

    /// Remembers that a restart gave this workload the digest.
    pub fn note_restart(&mut self, workload: &Workload, digest: &ContentDigest) {
        let digests = &mut self.workloads.entry(workload.uid.clone()).or_default().digests;
        digests.retain(|other| other != digest);
        if digests.len() == MAX_DIGESTS {
            digests.pop_front();
        }
        digests.push_back(digest.clone());
    }

    /// Returns whether a restart gave this workload the digest. If the workload lacks the digest now, somebody has
    /// undone the restart.
    pub fn was_restarted(&self, workload: &Workload, digest: &ContentDigest) -> bool {
        self.workloads.get(&workload.uid).is_some_and(|attempts| attempts.digests.contains(digest))
    }

    /// Notes the progress of a workload's last restart, which may be that of another config.
    pub fn observe(&mut self, workload: &Workload, settle_seconds: u32, now: Timestamp) {
        let Some(mark) = workload.mark() else { return };
        let watched = &mut self.workloads.entry(workload.uid.clone()).or_default().watched;
        let watched = match watched {
            Some(watched) if watched.mark == *mark => watched,
            _ => watched.insert(WatchedRestart {
                mark: mark.clone(),
                progressed_at: now,
                best: RestartCounts { done: ReplicaCounts::default().done(), left: (i32::MAX, i32::MAX) },
                up_since: None,
                restarts: None,
                settled: false,
            }),
        };
        if let Some(replicas) = workload.replicas {
            let done = replicas.done();
            let left = replicas.left();
            if left < watched.best.left || done > watched.best.done {
                watched.best = RestartCounts { done, left: left.min(watched.best.left) };
                watched.progressed_at = now;
            }
        }
        let has_crashed = workload.restarts.is_some_and(|count| {
            let (_, last) = watched.restarts.get_or_insert((count, count));
            count.total > std::mem::replace(last, count).total
        });
        // With a probe, `minReadySeconds` or a wait of zero, the workload's controller alone decides.
        let settle_seconds = workload.settle_seconds(settle_seconds);
        let may_crash = settle_seconds == 0 || mark.before.available().is_some();
        let is_up = match workload.progress_since(mark) {
            WorkloadProgress::Complete => may_crash || !has_crashed,
            WorkloadProgress::Ended => may_crash,
            WorkloadProgress::Moving | WorkloadProgress::Failed => false,
        };
        if is_up {
            let up_since = *watched.up_since.get_or_insert(now);
            watched.settled |= has_elapsed(up_since, settle_seconds, now);
        } else {
            watched.up_since = None;
        }
    }

    pub(super) fn watched_restart(&self, workload: &Workload, mark: &RestartMark) -> Option<&WatchedRestart> {
        self.workloads.get(&workload.uid)?.watched.as_ref().filter(|watched| watched.mark == *mark)
    }

    /// Returns whether the workload has come up after its last restart, even if it fails later.
    pub fn has_settled(&self, workload: &Workload) -> bool {
        let watched = workload.mark().and_then(|mark| self.watched_restart(workload, mark));
        watched.is_some_and(|watched| watched.settled)
    }

    /// Returns when a restart of the stage that began at `since` last progressed.
    pub fn last_progress(&self, since: Timestamp) -> Option<Timestamp> {
        let watched = self.workloads.values().filter_map(|attempts| attempts.watched.as_ref());
        watched.filter(|watched| watched.mark.at >= since).map(|watched| watched.progressed_at).max()
    }

    /// Remembers that pods of this group can't be evicted.
    pub fn note_group_refusal(&mut self, id: WorkloadId, report: ObjectReport) {
        self.groups.entry(id).or_default().refusal = Some(report);
    }

    /// Returns why pods of this group are not evicted.
    pub fn group_refusal(&self, id: &WorkloadId) -> Option<&ObjectReport> {
        self.groups.get(id)?.refusal.as_ref()
    }

    /// Returns whether the memory has any group.
    pub fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Returns how many pods of this group were Ready when this leader first looked. A new leader may count fewer, and
    /// then blames the version less.
    pub fn ready_before(&mut self, id: &WorkloadId, now: usize) -> usize {
        *self.groups.entry(id.clone()).or_default().ready.get_or_insert(now)
    }

    /// Forgets all workloads except these, which exist.
    pub fn keep_workloads<'a>(&mut self, existing: impl Iterator<Item = &'a Workload>) {
        let uids: BTreeSet<&str> = existing.map(|workload| workload.uid.as_str()).collect();
        self.workloads.retain(|uid, _| uids.contains(uid.as_str()));
    }

    /// Forgets all groups except these, which exist with or without pods.
    pub fn keep_groups<'a>(&mut self, existing: impl Iterator<Item = &'a WorkloadId>) {
        let ids: BTreeSet<&WorkloadId> = existing.collect();
        self.groups.retain(|id, _| ids.contains(id));
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

    fn report() -> ObjectReport {
        ObjectReport::new(Reason::Refused, &"Deployment/web".into(), "no")
    }

    #[test]
    fn the_first_look_at_a_group_counts_and_is_no_refusal() {
        let mut memory = RestartAttempts::default();
        assert_eq!(
            (memory.ready_before(&"ReplicaSet/web".into(), 3), memory.ready_before(&"ReplicaSet/web".into(), 1)),
            (3, 3)
        );
        assert_eq!(memory.ready_before(&"ReplicaSet/other".into(), 0), 0);
        assert_eq!(memory.group_refusal(&"ReplicaSet/web".into()), None);
        memory.note_group_refusal(WorkloadId::from("ReplicaSet/web"), report());
        assert_eq!(memory.group_refusal(&"ReplicaSet/web".into()), Some(&report()));
        assert_eq!(memory.clone().ready_before(&"ReplicaSet/web".into(), 2), 3);
    }

    #[test]
    fn a_refusal_and_a_restart_belong_to_one_object() {
        let (mut memory, web, anew) = (RestartAttempts::default(), web("1"), web("2"));
        memory.note_restart(&web, &"d".into());
        assert_eq!(memory.refusal(&web), None);
        memory.note_refusal(&web, report());
        assert_eq!(memory.refusal(&web), Some(&report()));
        assert!(memory.was_restarted(&web, &"d".into()) && !memory.was_restarted(&web, &"e".into()));
        assert_eq!(
            (memory.refusal(&anew), memory.was_restarted(&anew, &"d".into())),
            (None, false),
            "another of that name"
        );
    }

    #[test]
    fn a_refusal_is_tried_again_after_a_while_and_nothing_else_is_forgotten() {
        let (mut memory, web) = (RestartAttempts::default(), web("1"));
        let forget =
            |memory: &mut RestartAttempts, second| memory.forget_refusals(Timestamp::from_second(second).unwrap());
        forget(&mut memory, 100);
        memory.note_refusal(&web, report());
        memory.note_group_refusal(WorkloadId::from("ReplicaSet/web"), report());
        memory.note_restart(&web, &"d".into());
        forget(&mut memory, 109);
        assert!(memory.refusal(&web).is_some() && memory.group_refusal(&"ReplicaSet/web".into()).is_some());
        forget(&mut memory, 110);
        assert!(memory.refusal(&web).is_none() && memory.group_refusal(&"ReplicaSet/web".into()).is_none());
        assert!(memory.was_restarted(&web, &"d".into()));
    }

    #[test]
    fn deleted_objects_are_forgotten() {
        let (mut memory, web, other) = (RestartAttempts::default(), web("1"), web("2"));
        for number in 0..100 {
            memory.note_restart(&web, &(&*format!("digest-{number}")).into());
            memory.note_restart(&web, &"again".into());
        }
        assert_eq!(memory.workloads[&web.uid].digests.len(), MAX_DIGESTS);
        assert!(memory.was_restarted(&web, &"digest-99".into()) && memory.was_restarted(&web, &"again".into()));
        memory.note_refusal(&other, report());
        memory.keep_workloads([&other].into_iter());
        assert!(!memory.was_restarted(&web, &"again".into()) && memory.refusal(&other).is_some());
        memory.ready_before(&"ReplicaSet/web".into(), 3);
        memory.ready_before(&"ReplicaSet/old".into(), 3);
        memory.keep_groups([&"ReplicaSet/web".into()].into_iter());
        assert_eq!(
            (memory.ready_before(&"ReplicaSet/web".into(), 1), memory.ready_before(&"ReplicaSet/old".into(), 1)),
            (3, 1)
        );
        memory.keep_workloads([].into_iter());
        memory.keep_groups([].into_iter());
        assert!(memory.is_empty());
    }
}
