//! The events of a run, with their times: from the agents, and from watches of the API server.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nudge_api::VersionedConfigStatus;
use parking_lot::{Mutex, MutexGuard};

/// Versions of a run have the numbers below this.
const VERSIONS: usize = 4;

/// What happened to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The agent of the pod has the version.
    Taken,
    /// The application has acknowledged the version.
    Acknowledged,
    /// The application refuses the version.
    Refused,
    /// The condition of the pod says that it runs the version.
    Proven,
    /// The condition of the pod says that something is wrong or under way.
    Unproven,
}

/// Something that happened to a pod, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) at: Duration,
    pub(super) what: What,
    pub(super) version: u32,
}

/// The status of a config as a watch has shown it.
#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    pub(super) at: Duration,
    /// Length of the status as JSON.
    pub(super) bytes: usize,
    /// The status, without what is not measured here.
    pub(super) status: VersionedConfigStatus,
}

/// How often an agent has done what costs something.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Answers with an assignment.
    pub(super) answers: AtomicU32,
    /// Reports that were taken.
    pub(super) reports: AtomicU32,
    /// The number of connections.
    pub(super) handshakes: AtomicU32,
    /// Requests and connections that failed.
    pub(super) failures: AtomicU32,
}

struct Pod {
    config: usize,
    events: Mutex<Vec<Event>>,
    counts: Counts,
}

#[derive(Default)]
struct Config {
    looks: Mutex<Vec<Look>>,
    taken: [AtomicUsize; VERSIONS],
}

/// All of it.
pub(super) struct Journal {
    began: Instant,
    pods: Vec<Pod>,
    configs: Vec<Config>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl Journal {
    /// Returns a journal of this many configs with this many pods each; pods are numbered by config.
    pub(super) fn new(configs: usize, pods_each: usize) -> Self {
        let pod = |number| Pod { config: number / pods_each, events: Mutex::default(), counts: Counts::default() };
        Self {
            began: Instant::now(),
            pods: (0..configs * pods_each).map(pod).collect(),
            configs: (0..configs).map(|_| Config::default()).collect(),
        }
    }

    /// Returns the time since it began.
    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Enters what happens to a pod now; a condition only if it differs from the last condition.
    pub(super) fn enter(&self, pod: usize, what: What, version: u32) {
        let Some(of) = self.pods.get(pod) else { return };
        let event = Event { at: self.now(), what, version };
        let mut events = lock(&of.events);
        if is_condition(what)
            && let Some(last) = last_condition(&events)
            && (last.what, last.version) == (what, version)
        {
            return;
        }
        events.push(event);
        drop(events);
        if what == What::Taken
            && let Some(taken) = usize::try_from(version).ok().and_then(|at| self.configs[of.config].taken.get(at))
        {
            taken.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Enters the status of a config.
    pub(super) fn look(&self, config: usize, bytes: usize, status: VersionedConfigStatus) {
        if let Some(config) = self.configs.get(config) {
            lock(&config.looks).push(Look { at: self.now(), bytes, status });
        }
    }

    /// Returns how often agents of the config have taken the version.
    pub(super) fn taken_count(&self, config: usize, version: u32) -> usize {
        let of = usize::try_from(version).ok().and_then(|at| self.configs.get(config)?.taken.get(at));
        of.map_or(0, |taken| taken.load(Ordering::Relaxed))
    }

    /// Returns what an agent counts.
    pub(super) fn counts(&self, pod: usize) -> &Counts {
        &self.pods[pod].counts
    }

    /// Returns all events of the pods of a config.
    pub(super) fn events(&self, config: usize) -> Vec<Vec<Event>> {
        let of = self.pods.iter().filter(|pod| pod.config == config);
        of.map(|pod| lock(&pod.events).clone()).collect()
    }

    /// Returns all statuses of a config.
    pub(super) fn statuses(&self, config: usize) -> Vec<Look> {
        self.configs.get(config).map_or_else(Vec::new, |config| lock(&config.looks).clone())
    }

    /// Something of the last status of each config.
    pub(super) fn last_looks<T>(&self, of: impl Fn(&VersionedConfigStatus) -> T) -> Vec<Option<T>> {
        self.configs.iter().map(|config| lock(&config.looks).last().map(|look| of(&look.status))).collect()
    }

    /// Returns how many pods have a condition by which they run the version.
    pub(super) fn current_pods(&self, version: u32) -> usize {
        let says_so = |pod: &&Pod| {
            let condition = last_condition(&lock(&pod.events));
            condition.is_some_and(|last| (last.what, last.version) == (What::Proven, version))
        };
        self.pods.iter().filter(says_so).count()
    }

    /// Returns the longest status so far, in bytes.
    pub(super) fn longest_status(&self) -> usize {
        let of = |config: &Config| lock(&config.looks).iter().map(|look| look.bytes).max().unwrap_or(0);
        self.configs.iter().map(of).max().unwrap_or(0)
    }
}

fn is_condition(what: What) -> bool {
    matches!(what, What::Proven | What::Unproven)
}

/// Returns the condition that the pod has after these events.
pub(super) fn last_condition(events: &[Event]) -> Option<Event> {
    events.iter().rev().find(|event| is_condition(event.what)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_that_stays_is_entered_once() {
        let journal = Journal::new(2, 2);
        for (what, version) in
            [(What::Proven, 1), (What::Taken, 2), (What::Proven, 1), (What::Unproven, 1), (What::Proven, 2)]
        {
            journal.enter(3, what, version);
        }
        assert_eq!((journal.events(1)[1].len(), journal.current_pods(2), journal.current_pods(1)), (4, 1, 0));
        assert_eq!((journal.taken_count(1, 2), journal.taken_count(0, 2)), (1, 0));
        journal.enter(4, What::Taken, 2);
        assert_eq!(journal.events(2).len(), 0, "there is no such pod");
    }
}
