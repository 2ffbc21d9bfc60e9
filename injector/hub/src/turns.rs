//! Whose turn it is: each namespace has a queue of its own, by the time at which its pods are due, and the queues are served one after the
//! other. A namespace with many pods that are due delays the others by one pod each. Pure.

use std::collections::{BTreeSet, HashMap, VecDeque};

use nudge_core::keys::PodKey;
use tokio::time::Instant;

/// The pods of one namespace.
#[derive(Debug, Default)]
struct Due {
    order: BTreeSet<(Instant, String)>,
    by_pod: HashMap<String, (Instant, u32)>,
}

/// The pods that are due at some time: each once, so no more than there are pods.
#[derive(Debug, Default)]
pub(super) struct Turns {
    by_namespace: HashMap<String, Due>,
    /// Every namespace that has pods here, the next one in front.
    order: VecDeque<String>,
}

impl Turns {
    /// Makes the pod due at `at`, unless it is due earlier. `failures` is how often it has failed so far: one that has is due when its pause
    /// is over and not before, whatever is added.
    pub(super) fn add(&mut self, pod: &PodKey, at: Instant, failures: u32) {
        let due = self.by_namespace.entry(pod.namespace.clone()).or_insert_with(|| {
            self.order.push_back(pod.namespace.clone());
            Due::default()
        });
        let known = due.by_pod.get(&pod.name).copied();
        if let Some((known, _)) = known {
            due.order.remove(&(known, pod.name.clone()));
        }
        let (at, failures) = match known {
            Some(paused @ (_, 1..)) if failures == 0 => paused,
            Some((known, 0)) if failures == 0 => (known.min(at), 0),
            _ => (at, failures),
        };
        due.order.insert((at, pod.name.clone()));
        due.by_pod.insert(pod.name.clone(), (at, failures));
    }

    /// Takes the pod whose turn it is: of the first namespace that has one due, the one that is due for longest. The namespace then is the last.
    pub(super) fn next(&mut self, now: Instant) -> Option<(PodKey, u32)> {
        let is_due = |due: &Due| due.order.first().is_some_and(|(at, _)| *at <= now);
        let at = self.order.iter().position(|namespace| self.by_namespace.get(namespace).is_some_and(is_due))?;
        let namespace = self.order.remove(at)?;
        let due = self.by_namespace.get_mut(&namespace)?;
        let (_, name) = due.order.pop_first()?;
        let failures = due.by_pod.remove(&name).map_or(0, |(_, failures)| failures);
        if due.order.is_empty() {
            self.by_namespace.remove(&namespace);
        } else {
            self.order.push_back(namespace.clone());
        }
        Some((PodKey::new(namespace, name), failures))
    }

    /// When the next pod is due.
    pub(super) fn earliest(&self) -> Option<Instant> {
        self.by_namespace.values().filter_map(|due| Some(due.order.first()?.0)).min()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn pod(namespace: &str, name: &str) -> PodKey {
        PodKey::new(namespace, name)
    }

    #[test]
    fn namespaces_take_turns_and_pods_come_by_their_time() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        for number in 0..1000 {
            turns.add(&pod("loud", &format!("{number:04}")), now, 0);
        }
        turns.add(&pod("quiet", "b"), now, 0);
        turns.add(&pod("quiet", "a"), now - Duration::from_secs(1), 3);
        turns.add(&pod("quiet", "later"), now + Duration::from_secs(1), 0);
        let taken: Vec<String> =
            std::iter::from_fn(|| turns.next(now)).take(5).map(|(pod, failures)| format!("{pod} {failures}")).collect();
        assert_eq!(taken, ["loud/0000 0", "quiet/a 3", "loud/0001 0", "quiet/b 0", "loud/0002 0"]);
        assert_eq!(turns.earliest(), Some(now));
        assert_eq!(std::iter::from_fn(|| turns.next(now)).count(), 997);
        assert_eq!(turns.earliest(), Some(now + Duration::from_secs(1)));
    }

    #[test]
    fn a_pod_is_due_once_at_its_earliest_time() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        for seconds in [5, 1, 9] {
            turns.add(&pod("ns", "web"), now + Duration::from_secs(seconds), 0);
        }
        assert_eq!(turns.earliest(), Some(now + Duration::from_secs(1)));
        assert!(turns.next(now).is_none());
        assert!(turns.next(now + Duration::from_secs(1)).is_some());
        assert!(turns.by_namespace.is_empty() && turns.order.is_empty(), "nothing is left behind");
    }

    #[test]
    fn a_pause_after_failures_is_kept_whatever_is_added() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        let after = |seconds| now + Duration::from_secs(seconds);
        turns.add(&pod("ns", "web"), now, 0);
        turns.add(&pod("ns", "web"), after(60), 3);
        for _ in 0..1000 {
            turns.add(&pod("ns", "web"), now, 0);
        }
        assert!(turns.next(after(59)).is_none());
        assert_eq!(turns.next(after(60)), Some((pod("ns", "web"), 3)));
        assert!(turns.by_namespace.is_empty());
    }

    proptest! {
        /// Whatever the namespaces add, one that has a pod due waits for one pod of each other namespace at most.
        #[test]
        fn nobody_waits_longer_than_a_round(adds in proptest::collection::vec((0_u8..6, 0_u16..40), 1..200)) {
            let (mut turns, now) = (Turns::default(), Instant::now());
            let mut left: HashMap<String, BTreeSet<String>> = HashMap::new();
            for (namespace, name) in adds {
                let (namespace, name) = (namespace.to_string(), name.to_string());
                turns.add(&pod(&namespace, &name), now, 0);
                left.entry(namespace).or_default().insert(name);
            }
            let mut waited: HashMap<String, usize> = HashMap::new();
            while let Some((pod, _)) = turns.next(now) {
                let names = left.get_mut(&pod.namespace).unwrap();
                prop_assert!(names.remove(&pod.name), "each pod once");
                waited.insert(pod.namespace.clone(), 0);
                for (namespace, names) in &left {
                    if *namespace != pod.namespace && !names.is_empty() {
                        let waited = waited.entry(namespace.clone()).or_default();
                        *waited += 1;
                        prop_assert!(*waited < 6);
                    }
                }
            }
            prop_assert!(left.values().all(BTreeSet::is_empty));
        }
    }
}
