//! Whether containers of a pod restarted since a version was assigned to it. Earlier restarts are not the version's fault.
//!
//! Of pods that had restarted before, the status lists how often, as long as it has room. Of the others it stores when the last of them
//! restarted, and of any pod that is not listed only later restarts count. So a restart of long ago, as thousands of pods have in a big
//! cluster, is never held against a version. One that the version causes is: a pod that is waited for has been without a restart for ten
//! minutes when the version is assigned to it, and a restart since then is later. Only a restart that nobody sees for ten minutes is lost, as
//! in a pause; a pod that restarts again, or is not Ready, still counts against the version.

use std::collections::{BTreeSet, HashMap};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{PodRestarts, SkippedPod};

use super::Subject;

/// Pods that are listed: 70 bytes each. In tests so few that the simulation crosses the limit all the time.
pub(super) const ROOM: usize = if cfg!(test) { 3 } else { 1000 };

/// Restarts that pods had before the target was assigned to them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RestartCounts {
    /// Pods with restarts, and how many.
    pub listed: Vec<PodRestarts>,
    /// Of pods that are not listed only restarts from this time on count; absent while all have room.
    pub others_since: Option<Time>,
}

impl RestartCounts {
    /// Says of a pod that the target is assigned to whether one of its containers has restarted since.
    pub(super) fn has_restarted(&self) -> impl Fn(&Subject) -> bool {
        let counts: HashMap<&str, i32> = self.listed.iter().map(|known| (known.uid.as_str(), known.count)).collect();
        let since = self.others_since.as_ref().map(|time| time.0.as_second());
        move |pod| match (counts.get(pod.uid.as_str()), since) {
            (Some(before), _) => pod.restarts > *before,
            (None, None) => pod.restarts > 0,
            (None, Some(since)) => pod.restarts > 0 && pod.last_restart.is_some_and(|second| second >= since),
        }
    }

    /// The counts with these pods, which are waited for from now on.
    pub(super) fn with(self, pods: &[&Subject]) -> Self {
        let Self { mut listed, mut others_since } = self;
        let uids: BTreeSet<&str> = pods.iter().map(|pod| pod.uid.as_str()).collect();
        listed.retain(|known| !uids.contains(known.uid.as_str()));
        for pod in pods.iter().filter(|pod| pod.restarts > 0) {
            if listed.len() < ROOM {
                listed.push(PodRestarts { uid: pod.uid.clone(), count: pod.restarts });
            } else {
                // Of a pod whose last restart is forgotten, any restart with a time is new.
                let after = pod.last_restart.map_or(0, |second| second.saturating_add(1));
                let after = Time(Timestamp::from_second(after).unwrap_or(Timestamp::MAX));
                others_since = others_since.max(Some(after));
            }
        }
        listed.sort_by(|one, other| one.uid.cmp(&other.uid));
        Self { listed, others_since }
    }

    /// The counts without pods that are gone or not waited for: a skipped pod is counted anew once it is waited for again.
    pub(super) fn without(self, skipped: &[SkippedPod], there: impl Fn(&str) -> bool) -> Self {
        let skipped: BTreeSet<&str> = skipped.iter().map(|skipped| skipped.uid.as_str()).collect();
        let mut listed = self.listed;
        listed.retain(|known| there(&known.uid) && !skipped.contains(known.uid.as_str()));
        Self { listed, ..self }
    }
}

#[cfg(test)]
mod tests {
    use nudge_api::Reason;

    use super::super::tests::pod;
    use super::*;

    fn restarted(number: usize, restarts: i32, last_restart: Option<i64>) -> Subject {
        Subject { restarts, last_restart, ..pod("web", number) }
    }

    fn counts(pods: &[Subject]) -> RestartCounts {
        RestartCounts::default().with(&pods.iter().collect::<Vec<_>>())
    }

    #[test]
    fn of_few_pods_the_count_decides() {
        let pods = [restarted(0, 0, None), restarted(1, 7, Some(100))];
        let counts = counts(&pods);
        assert_eq!((counts.listed.len(), &counts.others_since), (1, &None));
        let has_restarted = counts.has_restarted();
        assert!(pods.iter().all(|pod| !has_restarted(pod)));
        assert!(has_restarted(&restarted(0, 1, None)) && has_restarted(&restarted(1, 8, Some(100))));
    }

    #[test]
    fn of_very_many_pods_the_time_decides_and_the_status_does_not_grow() {
        let all = |count: usize| -> Vec<Subject> {
            (0..count).map(|number| restarted(number, 2, i64::try_from(number).ok())).collect()
        };
        for count in [ROOM, ROOM + 1, 10_000] {
            let pods = all(count);
            let counts = counts(&pods);
            assert_eq!((counts.listed.len(), counts.others_since.is_some()), (ROOM, count > ROOM));
            let has_restarted = counts.has_restarted();
            assert!(pods.iter().all(|pod| !has_restarted(pod)), "what they did before is not held against it");
            let again = |pod: &Subject| Subject { restarts: 3, last_restart: Some(20_000), ..pod.clone() };
            assert!(pods.iter().all(|pod| has_restarted(&again(pod))));
            assert!(has_restarted(&restarted(count, 1, Some(20_000))), "one that never had restarted");
        }
    }

    #[test]
    fn a_pod_whose_last_restart_is_unknown_is_not_blamed_before_the_next() {
        let pods: Vec<Subject> = (0..=ROOM).map(|number| restarted(number, 1, None)).collect();
        let counts = counts(&pods);
        let has_restarted = counts.has_restarted();
        assert!(pods.iter().all(|pod| !has_restarted(pod)));
        assert!(has_restarted(&restarted(ROOM, 2, Some(5))));
    }

    #[test]
    fn entries_of_pods_that_are_gone_or_not_waited_for_make_room() {
        let pods: Vec<Subject> = (0..ROOM).map(|number| restarted(number, 1, Some(1))).collect();
        let skipped = [pods[0].skipped(Reason::Pending, true)];
        let counts = counts(&pods).without(&skipped, |uid| uid != pods[1].uid);
        assert_eq!(counts.listed.len(), ROOM - 2);
        let counts = counts.with(&[&pods[0]]);
        assert_eq!((counts.listed.len(), &counts.others_since), (ROOM - 1, &None));
    }
}
