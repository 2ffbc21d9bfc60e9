//! The order in which conditions are written. Those that show a failure come first. Namespaces take turns, and in each of them the configs do: one
//! with many pods that are due delays the others by one pod each. Pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use nudge_core::hub_health::waiting_reports::{MAX_FAILING_NAMESPACES, Waits};
use nudge_core::keys::PodKey;
use nudge_core::pods::PodState;
use tokio::time::{Duration, Instant};

use super::round_robin::RoundRobin;

/// After this number of turns of failures in a row, the others have one.
const FAILURES: u32 = 7;

/// A pod whose condition may have to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PendingWrite {
    pub(super) pod: PodKey,
    /// The config whose turn the write takes: the first one of the pod.
    pub(super) config: String,
    /// Whether the agent has reported a failure.
    pub(super) urgent: bool,
    /// How often the write was tried in vain.
    pub(super) failures: u32,
    /// Whether the API server has refused the write.
    pub(super) refusal: RefusalScope,
    /// Since when the write waits; `None` where nothing but others can end that.
    pub(super) since: Option<Instant>,
    /// When this write, or others of its namespace, began to fail though the API server answers.
    pub(super) failing: Option<Instant>,
}

/// What a refusal by the API server is taken for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RefusalScope {
    /// The API server has not refused the write.
    #[default]
    None,
    /// A refusal of the namespace: it is over when another write is accepted there.
    Namespace,
    /// A refusal of the pod: the write was refused again after that.
    Pod,
}

impl PendingWrite {
    pub(super) fn new(pod: &PodState, urgent: bool) -> Self {
        let config = pod.configs.first().map(ToString::to_string).unwrap_or_default();
        Self { pod: pod.key(), config, urgent, failures: 0, refusal: RefusalScope::None, since: None, failing: None }
    }
}

/// The pods of a config, by the time at which they are due.
type Due = BTreeSet<(Instant, String)>;
type Namespaces = RoundRobin<RoundRobin<Due>>;

/// The pods that are due at some time, each once.
#[derive(Debug, Default)]
pub(super) struct WriteOrder {
    writes: HashMap<PodKey, (Instant, PendingWrite)>,
    times: BTreeSet<(Instant, PodKey)>,
    failures: Namespaces,
    others: Namespaces,
    /// The pods whose refusal is over when another write is accepted in their namespace.
    refused: BTreeSet<PodKey>,
    /// Turns of failures since the others had one.
    in_a_row: u32,
}

impl WriteOrder {
    /// Makes the pod due at `at`, unless it is due earlier. One that was tried in vain is due when its pause is over and not before,
    /// whatever is added; but the first failure to be reported does not wait until a refusal is over.
    pub(super) fn add(&mut self, write: PendingWrite, at: Instant) {
        let (at, write) = match self.remove(&write.pod) {
            None => (at, write),
            Some((known_at, known)) => {
                let urgent = write.urgent || known.urgent;
                if write.failures > 0 || known.failures > 0 {
                    let ((tried_at, tried), (other_at, other)) = if write.failures > 0 {
                        ((at, write), (known_at, known))
                    } else {
                        ((known_at, known), (at, write))
                    };
                    let sooner = tried.refusal != RefusalScope::None && other.urgent && !tried.urgent;
                    (if sooner { tried_at.min(other_at) } else { tried_at }, PendingWrite { urgent, ..tried })
                } else {
                    let since = known.since.into_iter().chain(write.since).min();
                    (
                        known_at.min(at),
                        PendingWrite { urgent, since, failing: known.failing.or(write.failing), ..write },
                    )
                }
            }
        };
        self.ring(write.urgent).entry(&write.pod.namespace).entry(&write.config).insert((at, write.pod.name.clone()));
        self.times.insert((at, write.pod.clone()));
        if write.refusal == RefusalScope::Namespace {
            self.refused.insert(write.pod.clone());
        }
        self.writes.insert(write.pod.clone(), (at, write));
    }

    /// Takes in that a write was accepted in this namespace: what was refused there is due now. What is refused again is refused for itself.
    pub(super) fn accepted(&mut self, namespace: &str, now: Instant) {
        let there = self.refused.range(PodKey::new(namespace, "")..).take_while(|pod| pod.namespace == namespace);
        for pod in there.cloned().collect::<Vec<_>>() {
            if let Some((_, write)) = self.remove(&pod) {
                self.add(PendingWrite { refusal: RefusalScope::Pod, ..write }, now);
            }
        }
    }

    fn ring(&mut self, urgent: bool) -> &mut Namespaces {
        if urgent { &mut self.failures } else { &mut self.others }
    }

    fn remove(&mut self, pod: &PodKey) -> Option<(Instant, PendingWrite)> {
        let (at, write) = self.writes.remove(pod)?;
        self.times.remove(&(at, pod.clone()));
        self.refused.remove(pod);
        let due = (at, write.pod.name.clone());
        let of_config = |pods: &mut Due| {
            pods.remove(&due);
        };
        let of_namespace = |configs: &mut RoundRobin<Due>| configs.remove(&write.config, of_config, BTreeSet::is_empty);
        self.ring(write.urgent).remove(&write.pod.namespace, of_namespace, RoundRobin::is_empty);
        Some((at, write))
    }

    /// Takes the pod whose turn it is.
    pub(super) fn next(&mut self, now: Instant) -> Option<PendingWrite> {
        let first = |due: &mut Due| due.first().filter(|(at, _)| *at <= now).map(|(_, name)| name.clone());
        let mut both = [(true, &mut self.failures), (false, &mut self.others)];
        if self.in_a_row >= FAILURES {
            both.reverse();
        }
        let (urgent, (namespace, (_, name))) = both
            .into_iter()
            .find_map(|(urgent, namespaces)| Some((urgent, namespaces.take(|configs| configs.take(first))?)))?;
        self.in_a_row = if urgent { self.in_a_row + 1 } else { 0 };
        self.remove(&PodKey::new(namespace, name)).map(|(_, write)| write)
    }

    /// Returns when the next pod is due.
    pub(super) fn earliest(&self) -> Option<Instant> {
        self.times.first().map(|(at, _)| *at)
    }

    /// Returns for how long the oldest writes that can succeed have waited. What fails counts for its namespace alone, unless it does so in many
    /// and nothing was written since, the last time at `written`.
    pub(super) fn oldest(&self, written: Option<Instant>, now: Instant) -> Waits {
        let (mut shared, mut all_fail) = (Duration::ZERO, true);
        let mut failing = BTreeMap::<&str, Duration>::new();
        for (_, write) in self.writes.values() {
            let Some(since) = write.since else { continue };
            let oldest = match write.failing {
                None => &mut shared,
                Some(began) => {
                    all_fail &= written < Some(began);
                    failing.entry(&write.pod.namespace).or_default()
                }
            };
            *oldest = now.saturating_duration_since(since).max(*oldest);
        }
        if failing.len() > MAX_FAILING_NAMESPACES && all_fail {
            return Waits { shared: failing.into_values().fold(shared, Duration::max), failing: Vec::new() };
        }
        let mut failing: Vec<_> = failing.into_iter().map(|(namespace, wait)| (namespace.to_owned(), wait)).collect();
        failing.sort_by_key(|(_, wait)| Reverse(*wait));
        failing.truncate(MAX_FAILING_NAMESPACES);
        Waits { shared, failing }
    }
}

#[cfg(test)]
#[path = "write_order_tests.rs"]
mod tests;
