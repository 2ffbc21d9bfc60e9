//! Whether containers of a pod restarted since it was told, or had before, which is not the version's fault. Pure.
//!
//! Of pods that had restarted before it is stored how often. There is room for some only, since a status has a bound. Of those that find
//! none it is stored when the last of them restarted, and of any pod without an entry only restarts after that count. So a pod that
//! restarted long ago, as thousands have in a big cluster, is never held against a version, and one that restarts because of it is: who is
//! waited for has been quiet for ten minutes when it is told, and a restart since is later than that. What gets lost is a restart that nobody
//! saw for ten minutes, as in a pause; whoever restarts once more, or is not Ready, is still held against the version.

use std::collections::{BTreeSet, HashMap};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{PodRestarts, RolloutStatus};

use super::Subject;

/// Pods of which it is stored how often they had restarted: 70 bytes each. In tests so few that the simulation crosses it all the time.
pub(super) const ROOM: usize = if cfg!(test) { 3 } else { 1000 };

/// What is stored.
pub(super) struct Before<'a> {
    counts: HashMap<&'a str, i32>,
    /// Of pods without an entry restarts count from this second on.
    since: Option<i64>,
}

impl<'a> Before<'a> {
    pub(super) fn of(rollout: &'a RolloutStatus) -> Self {
        let counts = rollout.restarts.iter().map(|known| (known.uid.as_str(), known.count)).collect();
        Self { counts, since: rollout.restarts_counted_since.as_ref().map(|time| time.0.as_second()) }
    }

    /// Whether a container of this pod, which was told, has restarted since.
    pub(super) fn has_restarted(&self, pod: &Subject) -> bool {
        match (self.counts.get(pod.uid.as_str()), self.since) {
            (Some(before), _) => pod.restarts > *before,
            (None, None) => pod.restarts > 0,
            (None, Some(since)) => pod.restarts > 0 && pod.last_restart.is_some_and(|second| second >= since),
        }
    }
}

/// Stores how often these pods have restarted, which are waited for from now on.
pub(super) fn remember(rollout: &mut RolloutStatus, pods: &[&Subject]) {
    let uids: BTreeSet<&str> = pods.iter().map(|pod| pod.uid.as_str()).collect();
    rollout.restarts.retain(|known| !uids.contains(known.uid.as_str()));
    for pod in pods.iter().filter(|pod| pod.restarts > 0) {
        if rollout.restarts.len() < ROOM {
            rollout.restarts.push(PodRestarts { uid: pod.uid.clone(), count: pod.restarts });
        } else {
            // Of one whose last restart is forgotten any that has a time is new.
            let after = pod.last_restart.map_or(0, |second| second.saturating_add(1));
            let after = Time(Timestamp::from_second(after).unwrap_or(Timestamp::MAX));
            rollout.restarts_counted_since = rollout.restarts_counted_since.take().max(Some(after));
        }
    }
    rollout.restarts.sort_by(|one, other| one.uid.cmp(&other.uid));
}

/// Keeps nothing of pods that are gone or not waited for: it is stored anew when they come round.
pub(super) fn keep(rollout: &mut RolloutStatus, there: impl Fn(&str) -> bool) {
    let skipped: BTreeSet<&str> = rollout.skipped.iter().map(|skipped| skipped.uid.as_str()).collect();
    rollout.restarts.retain(|known| there(&known.uid) && !skipped.contains(known.uid.as_str()));
}

/// Forgets all of it: nobody is told anything.
pub(super) fn clear(rollout: &mut RolloutStatus) {
    rollout.restarts.clear();
    rollout.restarts_counted_since = None;
}

#[cfg(test)]
mod tests {
    use super::super::tests::pod;
    use super::*;

    fn restarted(number: usize, restarts: i32, last_restart: Option<i64>) -> Subject {
        Subject { restarts, last_restart, ..pod("web", number) }
    }

    fn told(pods: &[Subject]) -> RolloutStatus {
        let mut rollout = RolloutStatus::default();
        remember(&mut rollout, &pods.iter().collect::<Vec<_>>());
        rollout
    }

    #[test]
    fn of_few_pods_the_count_decides() {
        let pods = [restarted(0, 0, None), restarted(1, 7, Some(100))];
        let rollout = told(&pods);
        assert_eq!((rollout.restarts.len(), &rollout.restarts_counted_since), (1, &None));
        let before = Before::of(&rollout);
        assert!(pods.iter().all(|pod| !before.has_restarted(pod)));
        assert!(before.has_restarted(&restarted(0, 1, None)) && before.has_restarted(&restarted(1, 8, Some(100))));
    }

    #[test]
    fn of_very_many_pods_the_time_decides_and_the_status_does_not_grow() {
        let all = |count: usize| -> Vec<Subject> {
            (0..count).map(|number| restarted(number, 2, i64::try_from(number).ok())).collect()
        };
        for count in [ROOM, ROOM + 1, 10_000] {
            let pods = all(count);
            let rollout = told(&pods);
            assert_eq!((rollout.restarts.len(), rollout.restarts_counted_since.is_some()), (ROOM, count > ROOM));
            let before = Before::of(&rollout);
            assert!(pods.iter().all(|pod| !before.has_restarted(pod)), "what they did before is not held against it");
            let again = |pod: &Subject| Subject { restarts: 3, last_restart: Some(20_000), ..pod.clone() };
            assert!(pods.iter().all(|pod| before.has_restarted(&again(pod))));
            assert!(before.has_restarted(&restarted(count, 1, Some(20_000))), "one that never had restarted");
        }
    }

    #[test]
    fn one_whose_last_restart_nobody_knows_is_not_blamed_before_the_next() {
        let pods: Vec<Subject> = (0..=ROOM).map(|number| restarted(number, 1, None)).collect();
        let rollout = told(&pods);
        let before = Before::of(&rollout);
        assert!(pods.iter().all(|pod| !before.has_restarted(pod)));
        assert!(before.has_restarted(&restarted(ROOM, 2, Some(5))));
    }

    #[test]
    fn entries_of_pods_that_are_gone_or_not_waited_for_make_room() {
        let pods: Vec<Subject> = (0..ROOM).map(|number| restarted(number, 1, Some(1))).collect();
        let mut rollout = told(&pods);
        rollout.skipped = vec![super::super::proof::skip(&pods[0], "Pending", true)];
        keep(&mut rollout, |uid| uid != pods[1].uid);
        assert_eq!(rollout.restarts.len(), ROOM - 2);
        remember(&mut rollout, &[&pods[0]]);
        assert_eq!((rollout.restarts.len(), &rollout.restarts_counted_since), (ROOM - 1, &None));
        clear(&mut rollout);
        assert!(rollout.restarts.is_empty());
    }
}
