//! The evictions of pods that no rolling update restarts: pods of bare ReplicaSets and ReplicationControllers are
//! evicted one by one, others are reported.

use k8s_openapi::jiff::Timestamp;
use nudge_api::Reason;
use nudge_protocol::plural::{agreeing, counted};

use super::elapsed::has_elapsed;
use super::object_report::ObjectReport;
use crate::owners::WorkloadId;

/// The maximum number of pods that a message names.
const MAX_NAMED_PODS: usize = 5;

/// A pod that must be replaced to take another version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplaceablePod {
    /// The name of the pod.
    pub name: String,
    /// The time of the pod's creation.
    pub created: Timestamp,
    /// Whether the pod is Ready.
    pub ready: bool,
    /// Whether the pod is being deleted.
    pub terminating: bool,
    /// Whether a pod with an agent runs another version than it should. Without an agent the creation time decides.
    pub behind: Option<bool>,
}

/// A controller without rolling updates, and its pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodGroup {
    /// The controller, such as `ReplicaSet/web`.
    pub id: WorkloadId,
    /// The number of pods that the controller should have.
    pub replicas: usize,
    /// The number of pods that were Ready when this leader first looked in this part of the rollout.
    pub before: usize,
    /// The pods of the controller.
    pub pods: Vec<ReplaceablePod>,
}

/// The times that decide which pods have the old content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staleness {
    /// The time when the published ConfigMap was written. Creation times of pods have whole seconds.
    pub published: Timestamp,
    /// The earliest time when pods may have read the version that they leave; only on the way back.
    pub since: Option<Timestamp>,
}

impl Staleness {
    fn is_stale(self, pod: &ReplaceablePod) -> bool {
        let by_time = pod.created.as_second() <= self.published.as_second()
            && self.since.is_none_or(|since| pod.created.as_second() >= since.as_second());
        pod.behind.unwrap_or(by_time)
    }
}

/// The decision about the groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextEviction {
    /// All groups have the published content, or are reported.
    Done,
    /// Evict this pod of this group.
    Evict {
        /// The controller whose pods are the group.
        group: WorkloadId,
        /// The pod to evict, by its name.
        pod: String,
    },
    /// A pod is being replaced.
    Wait(String),
    /// A new pod did not become Ready.
    Failed(String),
}

impl PodGroup {
    /// Returns how many pods are Ready now.
    pub fn count_ready(&self) -> usize {
        self.pods.iter().filter(|pod| pod.ready && !pod.terminating).count()
    }

    /// Returns when the group last progressed: when its newest pod with the new content was created, or at `since`,
    /// when something before the group progressed.
    pub fn last_progress(&self, stale: Staleness, since: Timestamp) -> Timestamp {
        let new = self.pods.iter().filter(|pod| !stale.is_stale(pod));
        new.map(|pod| pod.created).max().unwrap_or(since).max(since)
    }

    /// Returns whether the group has fewer pods, old or Ready, than were Ready before. The version is not the cause of
    /// an old pod that is not Ready.
    fn has_fewer(&self, stale: Staleness) -> bool {
        let count = self.pods.iter().filter(|pod| !pod.terminating && (pod.ready || stale.is_stale(pod))).count();
        count < self.before.min(self.replicas)
    }

    /// Returns the report about a group that was not healthy before.
    pub fn unwell_report(&self) -> Option<ObjectReport> {
        let Self { id, replicas, before, .. } = self;
        (before < replicas).then(|| {
            let message = format!(
                "only {before} of {} of {id} {} Ready before, so Nudge waited for no more",
                counted(*replicas, "pod"),
                agreeing(*before, "was", "were")
            );
            ObjectReport::new(Reason::Unwell, id, message)
        })
    }
}

/// Decides about the groups, one after another. `since` is when the restarts last progressed; pods of an `is_refused`
/// group can't be evicted. A version fails only if a group has fewer pods than before.
pub fn next_eviction(
    groups: &[PodGroup],
    stale: Staleness,
    since: Timestamp,
    deadline_seconds: u32,
    is_refused: impl Fn(&WorkloadId) -> bool,
    now: Timestamp,
) -> NextEviction {
    for group in groups.iter().filter(|group| !is_refused(&group.id)) {
        let id = &group.id;
        let old: Vec<&ReplaceablePod> = group.pods.iter().filter(|pod| stale.is_stale(pod)).collect();
        let victim = old.iter().filter(|pod| !pod.terminating).min_by_key(|pod| (pod.ready, &pod.name));
        let fewer = group.has_fewer(stale);
        let terminating = match victim {
            Some(_) => group.pods.iter().any(|pod| pod.terminating),
            // The last old pod may still be terminating.
            None => old.iter().any(|pod| pod.terminating),
        };
        // On the way back nothing waits for the last old pod.
        if (fewer || terminating) && (victim.is_some() || stale.since.is_none()) {
            if !has_elapsed(group.last_progress(stale, since), deadline_seconds, now) {
                return NextEviction::Wait(format!("a pod of {id} is being replaced"));
            }
            if fewer && stale.since.is_none() {
                return NextEviction::Failed(format!("a new pod of {id} did not come up"));
            }
        }
        if let Some(victim) = victim {
            return NextEviction::Evict { group: id.clone(), pod: victim.name.clone() };
        }
    }
    NextEviction::Done
}

/// Returns the report about stale pods that only a person can restart.
pub fn report_stale_pods(pods: &[ReplaceablePod], stale: Staleness) -> Option<ObjectReport> {
    let old: Vec<&str> =
        pods.iter().filter(|pod| stale.is_stale(pod) && !pod.terminating).map(|pod| pod.name.as_str()).collect();
    (!old.is_empty()).then(|| {
        let ellipsis = if old.len() > MAX_NAMED_PODS { ", …" } else { "" };
        let names = old[..old.len().min(MAX_NAMED_PODS)].join(", ");
        ObjectReport::about_several(
            Reason::Stale,
            format!(
                "{} that nothing restarts {} the old content: {names}{ellipsis}; delete and create {} again",
                counted(old.len(), "pod"),
                agreeing(old.len(), "has", "have"),
                agreeing(old.len(), "it", "them")
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn pod(name: &str, created: i64) -> ReplaceablePod {
        ReplaceablePod { name: name.to_owned(), created: at(created), ready: true, terminating: false, behind: None }
    }

    fn group(pods: Vec<ReplaceablePod>) -> [PodGroup; 1] {
        [PodGroup { id: "ReplicaSet/web".into(), replicas: 2, before: 2, pods }]
    }

    const STALE: Staleness = Staleness { published: Timestamp::UNIX_EPOCH, since: None };

    fn decide(pods: Vec<ReplaceablePod>, now: i64) -> NextEviction {
        next_eviction(&group(pods), Staleness { published: at(100), ..STALE }, at(100), 60, |_| false, at(now))
    }

    #[test]
    fn one_pod_after_another() {
        let evicts = |name: &str| NextEviction::Evict { group: "ReplicaSet/web".into(), pod: name.to_owned() };
        assert_eq!(decide(vec![pod("a", 1), pod("b", 1)], 101), evicts("a"));
        // The replacement is not there yet, then not Ready yet.
        assert!(matches!(decide(vec![pod("b", 1)], 101), NextEviction::Wait(_)));
        let terminating = ReplaceablePod { terminating: true, ..pod("a", 1) };
        assert!(matches!(decide(vec![terminating, pod("b", 1), pod("c", 101)], 102), NextEviction::Wait(_)));
        let new = ReplaceablePod { ready: false, ..pod("c", 101) };
        assert!(matches!(decide(vec![pod("b", 1), new.clone()], 102), NextEviction::Wait(_)));
        assert!(matches!(decide(vec![pod("b", 1), new.clone()], 161), NextEviction::Failed(_)));
        assert_eq!(decide(vec![pod("b", 1), pod("c", 101)], 102), evicts("b"));
        assert!(matches!(decide(vec![pod("d", 102), new], 103), NextEviction::Wait(_)));
        assert_eq!(decide(vec![pod("c", 101), pod("d", 102)], 103), NextEviction::Done);
        // One that is not Ready goes first.
        assert_eq!(decide(vec![pod("a", 1), ReplaceablePod { ready: false, ..pod("b", 1) }], 101), evicts("b"));
    }

    #[test]
    fn each_new_pod_is_progress() {
        let stale = Staleness { published: at(100), ..STALE };
        let progressed = |pods| group(pods)[0].last_progress(stale, at(100));
        assert_eq!(progressed(vec![pod("a", 1), pod("b", 1)]), at(100));
        assert_eq!(progressed(vec![pod("a", 1), pod("new", 690), pod("newer", 700)]), at(700));
    }

    /// Plays the evictions of a group that had `before` Ready pods. `comes` says whether the new pod of each eviction
    /// is Ready; `None` means that there is no new pod.
    fn replaced(before: usize, replicas: usize, old: &[bool], comes: Option<bool>) -> (NextEviction, Vec<String>) {
        let pods =
            old.iter().enumerate().map(|(n, &ready)| ReplaceablePod { ready, ..pod(&format!("old-{n}"), 1) }).collect();
        let mut groups = [PodGroup { id: "ReplicaSet/web".into(), replicas, before, pods }];
        let (stale, mut now, mut evicted) = (Staleness { published: at(100), ..STALE }, 101, Vec::new());
        loop {
            match next_eviction(&groups, stale, at(100), 60, |_| false, at(now)) {
                NextEviction::Evict { pod: name, .. } => {
                    groups[0].pods.retain(|pod| pod.name != name);
                    let ready = comes.unwrap_or_default();
                    groups[0]
                        .pods
                        .extend(comes.map(|_| ReplaceablePod { ready, ..pod(&format!("new-{}", evicted.len()), now) }));
                    evicted.push(name);
                }
                NextEviction::Wait(_) => now += 10,
                end => return (end, evicted),
            }
        }
    }

    #[test]
    fn a_version_is_not_blamed_for_a_group_that_was_unwell_before() {
        for (old, replicas) in [(&[false, false][..], 2), (&[false], 1), (&[false, false], 3)] {
            let (end, evicted) = replaced(0, replicas, old, Some(false));
            assert_eq!((end, evicted.len()), (NextEviction::Done, old.len()), "all get what is published");
        }
        // A quota keeps the third away, and so do the two that are there.
        assert_eq!(replaced(2, 3, &[true, true], Some(true)).0, NextEviction::Done);
        let (end, evicted) = replaced(1, 2, &[true, false], Some(true));
        assert_eq!((end, evicted), (NextEviction::Done, vec!["old-1".to_owned(), "old-0".to_owned()]));
        let report = group(Vec::new()).map(|group| PodGroup { before: 1, ..group }.unwell_report())[0].clone().unwrap();
        assert!(
            report.why.reason == Reason::Unwell && report.why.message.contains("only 1 of 2 pods"),
            "{}",
            report.why.message
        );
        assert_eq!(group(Vec::new())[0].unwell_report(), None);
    }

    #[test]
    fn a_version_is_blamed_for_a_group_with_fewer_pods() {
        let (end, evicted) = replaced(2, 2, &[true, true], Some(false));
        assert!(matches!(end, NextEviction::Failed(_)) && evicted.len() == 1, "the other one runs on");
        // The pod that was not Ready proves nothing; the pod that was Ready does.
        assert!(matches!(replaced(1, 2, &[true, false], Some(false)).0, NextEviction::Failed(_)));
        assert!(matches!(replaced(2, 3, &[true, true], None).0, NextEviction::Failed(_)));
    }

    #[test]
    fn on_the_way_back_only_pods_of_the_version_that_is_left_go_and_nothing_fails() {
        let stale = Staleness { published: at(200), since: Some(at(100)) };
        let decide = |pods| next_eviction(&group(pods), stale, at(200), 60, |_| false, at(900));
        assert_eq!(decide(vec![pod("a", 1), pod("b", 1)]), NextEviction::Done);
        let broken = ReplaceablePod { ready: false, ..pod("b", 150) };
        assert!(matches!(decide(vec![pod("a", 1), broken]), NextEviction::Evict { pod, .. } if pod == "b"));
    }

    #[test]
    fn groups_that_cannot_be_evicted_are_left_and_bare_pods_are_named() {
        let stale = Staleness { published: at(100), ..STALE };
        assert_eq!(
            next_eviction(&group(vec![pod("a", 1)]), stale, at(100), 60, |id| id.as_str() == "ReplicaSet/web", at(101)),
            NextEviction::Done
        );
        let pods: Vec<ReplaceablePod> = (0..7).map(|n| pod(&format!("p{n}"), 1)).collect();
        let report = report_stale_pods(&pods, stale).unwrap();
        let message = report.why.message;
        assert!(message.starts_with("7 pods") && message.contains("p4, …"), "{message}");
        assert_eq!(report_stale_pods(&[pod("new", 101)], stale), None);
        // An agent reports the version of its pod.
        let [old, new] =
            [(101, true), (1, false)].map(|(made, old)| ReplaceablePod { behind: Some(old), ..pod("job", made) });
        assert!(report_stale_pods(&[old], stale).is_some() && report_stale_pods(&[new], stale).is_none());
    }
}
