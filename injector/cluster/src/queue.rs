//! The work queue of the controller. It hands out each config when it is due, at most once, and never while somebody
//! works on it. Urgent configs overtake all others.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use nudge_core::keys::ConfigKey;
use nudge_protocol::backoff::Backoff;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The waits after failures in a row.
const FAILURE_BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_mins(1) };

/// The priority of the keys that a worker takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Urgent keys only.
    Urgent,
    /// All keys, the urgent ones first.
    Any,
}

/// The time and the priority of the work on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Due {
    time: Instant,
    urgent: bool,
}

type Heap = BinaryHeap<Reverse<(Instant, ConfigKey)>>;

#[derive(Default)]
struct QueueState {
    due: HashMap<ConfigKey, Due>,
    /// The urgent keys that are due. The heap may hold outdated entries, which do not count.
    urgent: Heap,
    others: Heap,
    /// The keys that are being worked on, each with whether it became due meanwhile.
    running: HashMap<ConfigKey, bool>,
    failures: HashMap<ConfigKey, u32>,
}

/// The queue, whose length is bounded by the number of configs.
pub struct Queue {
    state: Mutex<QueueState>,
    changed: Notify,
    is_urgent: Box<dyn Fn(&ConfigKey) -> bool + Send + Sync>,
}

impl Default for Queue {
    fn default() -> Self {
        Self::new(|_| false)
    }
}

impl Queue {
    /// Returns a queue that calls `is_urgent` for each key, whenever it is added.
    pub fn new(is_urgent: impl Fn(&ConfigKey) -> bool + Send + Sync + 'static) -> Self {
        Self { state: Mutex::default(), changed: Notify::new(), is_urgent: Box::new(is_urgent) }
    }

    /// Makes the key due after `wait`, unless it is due earlier.
    pub fn add(&self, key: ConfigKey, wait: Duration) {
        let urgent = (self.is_urgent)(&key);
        self.put(key, wait, urgent);
    }

    /// Adds a key that is urgent this time.
    pub fn add_urgent(&self, key: ConfigKey, wait: Duration) {
        self.put(key, wait, true);
    }

    fn put(&self, key: ConfigKey, wait: Duration, urgent: bool) {
        let due_time = Instant::now() + wait;
        if self.state.lock().put(key, Due { time: due_time, urgent }) {
            self.changed.notify_waiters();
        }
    }

    /// Waits for the next key that is due. Call [`Self::note_success`] or [`Self::note_failure`] at the end of its
    /// work.
    pub async fn next(&self, priority: Priority) -> ConfigKey {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // A key that is added from now on wakes this call, even before it waits.
            changed.as_mut().enable();
            let taken = self.state.lock().take(priority, Instant::now());
            match taken {
                Ok(key) => return key,
                Err(Some(due_time)) => _ = tokio::time::timeout_at(due_time, changed).await,
                Err(None) => changed.await,
            }
        }
    }

    /// Ends the work on a key.
    pub fn note_success(&self, key: &ConfigKey) {
        self.finish(key, |state, became_due| {
            state.failures.remove(key);
            became_due.then_some(Duration::ZERO)
        });
    }

    /// Ends the work on a key and makes it due again, later after each failure in a row. `random` is between 0 and 1.
    pub fn note_failure(&self, key: &ConfigKey, random: f64) {
        self.finish(key, |state, _| {
            let failures = state.failures.entry(key.clone()).or_default();
            *failures += 1;
            Some(FAILURE_BACKOFF.jittered_wait(*failures, random))
        });
    }

    fn finish(&self, key: &ConfigKey, next_wait: impl FnOnce(&mut QueueState, bool) -> Option<Duration>) {
        let (wait, was_urgent) = {
            let mut state = self.state.lock();
            let became_due = state.running.remove(key) == Some(true);
            let due = if became_due { state.due.remove(key) } else { None };
            (next_wait(&mut state, became_due), due.is_some_and(|due| due.urgent))
        };
        if let Some(wait) = wait {
            let urgent = was_urgent || (self.is_urgent)(key);
            self.put(key.clone(), wait, urgent);
        }
    }

    /// Removes all keys.
    pub fn clear(&self) {
        *self.state.lock() = QueueState::default();
    }

    /// Returns the number of keys that are due or wait.
    pub fn len(&self) -> usize {
        self.state.lock().due.len()
    }

    /// Returns whether no key is due or waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl QueueState {
    /// Makes the key due. Returns whether that changes anything.
    fn put(&mut self, key: ConfigKey, due: Due) -> bool {
        let queued = self.due.get(&key).copied();
        let next =
            queued.map_or(due, |queued| Due { time: queued.time.min(due.time), urgent: queued.urgent || due.urgent });
        if queued == Some(next) {
            return false;
        }
        self.due.insert(key.clone(), next);
        self.heap(next.urgent).push(Reverse((next.time, key)));
        // Outdated entries stay in the heaps until they are half of them, so a rebuild costs little for each change.
        if self.urgent.len() + self.others.len() > 64 + 2 * self.due.len() {
            let entries = |urgent: bool| {
                let due = self.due.iter().filter(move |(_, due)| due.urgent == urgent);
                due.map(|(key, due)| Reverse((due.time, key.clone()))).collect()
            };
            (self.urgent, self.others) = (entries(true), entries(false));
        }
        true
    }

    fn heap(&mut self, urgent: bool) -> &mut Heap {
        if urgent { &mut self.urgent } else { &mut self.others }
    }

    /// Takes a key that is due at `now`. Fails with the time when the next key is due.
    fn take(&mut self, priority: Priority, now: Instant) -> Result<ConfigKey, Option<Instant>> {
        let mut wake = None;
        for urgent in [true, false] {
            if !urgent && priority == Priority::Urgent {
                break;
            }
            while let Some(Reverse((due_time, key))) = self.heap(urgent).peek().cloned() {
                let is_current = self.due.get(&key) == Some(&Due { time: due_time, urgent });
                if is_current && due_time > now {
                    wake = wake.into_iter().chain([due_time]).min();
                    break;
                }
                self.heap(urgent).pop();
                if !is_current {
                    continue;
                }
                if let Some(became_due) = self.running.get_mut(&key) {
                    // The end of the work makes it due again.
                    *became_due = true;
                } else {
                    self.due.remove(&key);
                    self.running.insert(key.clone(), false);
                    return Ok(key);
                }
            }
        }
        Err(wake)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ConfigKey {
        ConfigKey::parse("ns", name).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn each_key_comes_once_at_its_earliest_time() {
        let queue = Queue::default();
        queue.add(key("late"), Duration::from_mins(1));
        queue.add(key("soon"), Duration::from_secs(1));
        queue.add(key("late"), Duration::from_secs(2));
        queue.add(key("late"), Duration::from_secs(90));
        let began = Instant::now();
        assert_eq!(queue.next(Priority::Any).await, key("soon"));
        assert_eq!(queue.next(Priority::Any).await, key("late"));
        assert_eq!(began.elapsed().as_secs(), 2);
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_becomes_due_while_it_is_worked_on_comes_afterwards() {
        let queue = Queue::default();
        queue.add(key("a"), Duration::ZERO);
        assert_eq!(queue.next(Priority::Any).await, key("a"));
        queue.add(key("a"), Duration::ZERO);
        queue.add(key("b"), Duration::ZERO);
        assert_eq!(queue.next(Priority::Any).await, key("b"));
        assert!(tokio::time::timeout(Duration::from_secs(5), queue.next(Priority::Any)).await.is_err());
        queue.note_success(&key("a"));
        assert_eq!(queue.next(Priority::Any).await, key("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_come_again_later_and_later() {
        let queue = Queue::default();
        queue.add(key("a"), Duration::ZERO);
        let mut waits = Vec::new();
        for _ in 0..4 {
            let began = Instant::now();
            queue.next(Priority::Any).await;
            waits.push(began.elapsed().as_millis());
            queue.note_failure(&key("a"), 1.0);
        }
        assert_eq!(waits, [0, 200, 400, 800]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_must_go_back_is_served_next_among_a_thousand() {
        let queue = Queue::new(|key| key.name.as_str() == "back-by-spec");
        (0..1000).for_each(|number| queue.add(key(&format!("config-{number}")), Duration::ZERO));
        queue.add(key("back-by-spec"), Duration::ZERO);
        assert_eq!(queue.next(Priority::Any).await, key("back-by-spec"));
        // A config that waits already overtakes when its pods are harmed.
        queue.add_urgent(key("config-999"), Duration::ZERO);
        assert_eq!(queue.next(Priority::Urgent).await, key("config-999"));
        assert_eq!(queue.len(), 999);
        let none = tokio::time::timeout(Duration::from_mins(1), queue.next(Priority::Urgent)).await;
        assert!(none.is_err(), "the others are left to other workers");
        // Configs that are worked on come again as soon as that ends.
        queue.add(key("back-by-spec"), Duration::ZERO);
        queue.add_urgent(key("config-999"), Duration::ZERO);
        let first = queue.next(Priority::Any).await;
        assert!(!["config-999", "back-by-spec"].contains(&first.name.as_str()));
        queue.note_success(&key("config-999"));
        assert_eq!(queue.next(Priority::Any).await, key("config-999"));
        // After a failure the config is urgent again, once it has waited.
        queue.note_failure(&key("back-by-spec"), 1.0);
        assert_ne!(queue.next(Priority::Any).await, key("back-by-spec"));
        tokio::time::advance(Duration::from_millis(200)).await;
        assert_eq!(queue.next(Priority::Any).await, key("back-by-spec"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_waits_for_urgent_keys_wakes_for_them() {
        let queue = std::sync::Arc::new(Queue::default());
        let take = |priority| {
            let queue = std::sync::Arc::clone(&queue);
            tokio::spawn(async move { queue.next(priority).await })
        };
        let (urgent, any) = (take(Priority::Urgent), take(Priority::Any));
        tokio::task::yield_now().await;
        queue.add(key("a"), Duration::from_secs(1));
        assert_eq!(any.await.unwrap(), key("a"));
        queue.add(key("b"), Duration::ZERO);
        queue.add_urgent(key("c"), Duration::from_secs(1));
        assert_eq!(urgent.await.unwrap(), key("c"));
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn the_heaps_have_a_bound() {
        let queue = Queue::default();
        let longest = Duration::from_hours(1);
        for at in 0..10_000 {
            queue.add(key("a"), longest.saturating_sub(Duration::from_millis(at)));
        }
        let state = queue.state.lock();
        assert!(state.urgent.len() + state.others.len() <= 70 && state.due.len() == 1);
    }
}
