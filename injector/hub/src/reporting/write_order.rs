//! The order of the writes of conditions. Conditions that show a failure come first. Namespaces take turns, and so do
//! the configs of each namespace: a config with many due pods delays each other config by one pod. Does no I/O.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use nudge_core::hub_health::waiting_reports::{MAX_FAILING_NAMESPACES, Waits};
use nudge_core::keys::PodKey;
use nudge_core::pods::PodState;
use tokio::time::{Duration, Instant};

use super::round_robin::RoundRobin;

/// The maximum number of turns of failures in a row; then another condition gets a turn.
const MAX_FAILURE_TURNS: u32 = 7;

/// A pod whose condition may have to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PendingWrite {
    pub(super) pod: PodKey,
    /// The config whose turn the write takes: the first one of the pod.
    pub(super) config: String,
    /// Whether the agent has reported a failure.
    pub(super) urgent: bool,
    /// The number of failed attempts.
    pub(super) failures: u32,
    /// The refusal of the write by the API server.
    pub(super) refusal: RefusalScope,
    /// The time since which the write waits; `None` if the hub can't end the wait.
    pub(super) since: Option<Instant>,
    /// The time since which this write, or others of its namespace, fail though the API server answers.
    pub(super) failing_since: Option<Instant>,
}

/// The scope of a refusal by the API server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RefusalScope {
    /// The API server has not refused the write.
    #[default]
    None,
    /// The refusal may be over when another write of the namespace is accepted.
    Namespace,
    /// The write was refused again after another one was accepted.
    Pod,
}

impl PendingWrite {
    pub(super) fn new(pod: &PodState, urgent: bool) -> Self {
        let config = pod.configs.first().map(ToString::to_string).unwrap_or_default();
        Self {
            pod: pod.key(),
            config,
            urgent,
            failures: 0,
            refusal: RefusalScope::None,
            since: None,
            failing_since: None,
        }
    }
}

/// The pods of a config, by the time when they are due.
type DuePods = BTreeSet<(Instant, String)>;
type Namespaces = RoundRobin<RoundRobin<DuePods>>;

/// The pods that are due at some time, each once.
#[derive(Debug, Default)]
pub(super) struct WriteOrder {
    writes: HashMap<PodKey, (Instant, PendingWrite)>,
    times: BTreeSet<(Instant, PodKey)>,
    failures: Namespaces,
    others: Namespaces,
    /// The pods whose refusal is over when another write is accepted in their namespace.
    refused: BTreeSet<PodKey>,
    /// The number of turns of failures since the others' last turn.
    failure_turns: u32,
}

impl WriteOrder {
    /// Makes the pod due at `due_time`, unless it is due earlier. After a failed attempt, a pod is due only after its
    /// delay, whatever is added. Only the first failure of an agent does not wait for the end of a refusal.
    pub(super) fn add(&mut self, write: PendingWrite, due_time: Instant) {
        let (due_time, write) = match self.remove(&write.pod) {
            None => (due_time, write),
            Some((old_at, old)) if write.failures > 0 || old.failures > 0 => {
                let urgent = write.urgent || old.urgent;
                let (failed_at, failed, other_at, other) =
                    if write.failures > 0 { (due_time, write, old_at, old) } else { (old_at, old, due_time, write) };
                let is_sooner = failed.refusal != RefusalScope::None && other.urgent && !failed.urgent;
                (if is_sooner { failed_at.min(other_at) } else { failed_at }, PendingWrite { urgent, ..failed })
            }
            Some((old_at, old)) => {
                let (urgent, failing_since) = (write.urgent || old.urgent, old.failing_since.or(write.failing_since));
                let since = old.since.into_iter().chain(write.since).min();
                (old_at.min(due_time), PendingWrite { urgent, since, failing_since, ..write })
            }
        };
        self.namespaces(write.urgent)
            .entry(&write.pod.namespace)
            .entry(&write.config)
            .insert((due_time, write.pod.name.clone()));
        self.times.insert((due_time, write.pod.clone()));
        if write.refusal == RefusalScope::Namespace {
            self.refused.insert(write.pod.clone());
        }
        self.writes.insert(write.pod.clone(), (due_time, write));
    }

    /// Makes the refused writes of this namespace due, because another one was accepted. The next refusal of one is its
    /// own.
    pub(super) fn retry_refused(&mut self, namespace: &str, now: Instant) {
        let pods = self.refused.range(PodKey::new(namespace, "")..).take_while(|pod| pod.namespace == namespace);
        for pod in pods.cloned().collect::<Vec<_>>() {
            if let Some((_, write)) = self.remove(&pod) {
                self.add(PendingWrite { refusal: RefusalScope::Pod, ..write }, now);
            }
        }
    }

    fn namespaces(&mut self, urgent: bool) -> &mut Namespaces {
        if urgent { &mut self.failures } else { &mut self.others }
    }

    fn remove(&mut self, pod: &PodKey) -> Option<(Instant, PendingWrite)> {
        let (due_time, write) = self.writes.remove(pod)?;
        self.times.remove(&(due_time, pod.clone()));
        self.refused.remove(pod);
        let due = (due_time, write.pod.name.clone());
        let remove_pod = |pods: &mut DuePods| drop(pods.take(&due));
        let remove_config =
            |configs: &mut RoundRobin<DuePods>| configs.remove(&write.config, remove_pod, BTreeSet::is_empty);
        self.namespaces(write.urgent).remove(&write.pod.namespace, remove_config, RoundRobin::is_empty);
        Some((due_time, write))
    }

    /// Takes the pod whose turn it is.
    pub(super) fn next(&mut self, now: Instant) -> Option<PendingWrite> {
        let first_due =
            |pods: &mut DuePods| pods.first().filter(|(due_time, _)| *due_time <= now).map(|(_, name)| name.clone());
        let mut queues = [(true, &mut self.failures), (false, &mut self.others)];
        if self.failure_turns >= MAX_FAILURE_TURNS {
            queues.reverse();
        }
        let (urgent, (namespace, (_, name))) = queues
            .into_iter()
            .find_map(|(urgent, namespaces)| Some((urgent, namespaces.take(|configs| configs.take(first_due))?)))?;
        self.failure_turns = if urgent { self.failure_turns + 1 } else { 0 };
        self.remove(&PodKey::new(namespace, name)).map(|(_, write)| write)
    }

    /// Returns the time when the next pod is due.
    pub(super) fn earliest(&self) -> Option<Instant> {
        self.times.first().map(|(due_time, _)| *due_time)
    }

    /// Returns how long the oldest writes that can succeed have waited. A failing write counts for its namespace only,
    /// unless writes fail in many namespaces and none has succeeded since, the last one at `last_write`.
    pub(super) fn longest_waits(&self, last_write: Option<Instant>, now: Instant) -> Waits {
        let (mut shared, mut all_fail) = (Duration::ZERO, true);
        let mut failing = BTreeMap::<&str, Duration>::new();
        for (_, write) in self.writes.values() {
            let Some(since) = write.since else { continue };
            let longest_wait = match write.failing_since {
                None => &mut shared,
                Some(failing_since) => {
                    all_fail &= last_write < Some(failing_since);
                    failing.entry(&write.pod.namespace).or_default()
                }
            };
            *longest_wait = now.saturating_duration_since(since).max(*longest_wait);
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
