//! The work queue of the controller: each config at most once, when it is due, and never two reconciles of one at once. Urgent ones overtake
//! all others.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use nudge_core::keys::ConfigKey;
use nudge_protocol::backoff::Backoff;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Waits after failures in a row.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_mins(1) };

/// Which keys are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Urgent ones alone.
    Urgent,
    /// Any, the urgent ones first.
    Any,
}

/// When a key is to be worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Due {
    at: Instant,
    urgent: bool,
}

type Heap = BinaryHeap<Reverse<(Instant, ConfigKey)>>;

#[derive(Default)]
struct Inner {
    due: HashMap<ConfigKey, Due>,
    /// The keys that are due, urgent ones and others. The heaps may hold older entries, which do not count.
    urgent: Heap,
    others: Heap,
    /// Keys that are being worked on, and whether one became due meanwhile.
    running: HashMap<ConfigKey, bool>,
    failures: HashMap<ConfigKey, u32>,
}

/// The queue. Bounded by the number of configs.
pub struct Queue {
    inner: Mutex<Inner>,
    changed: Notify,
    is_urgent: Box<dyn Fn(&ConfigKey) -> bool + Send + Sync>,
}

impl Default for Queue {
    fn default() -> Self {
        Self::new(|_| false)
    }
}

impl Queue {
    /// A queue that is asked of each key, whenever it is added, whether it is urgent.
    pub fn new(is_urgent: impl Fn(&ConfigKey) -> bool + Send + Sync + 'static) -> Self {
        Self { inner: Mutex::default(), changed: Notify::new(), is_urgent: Box::new(is_urgent) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
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
        let at = Instant::now() + wait;
        if self.lock().put(key, Due { at, urgent }) {
            self.changed.notify_waiters();
        }
    }

    /// Waits for the next key that is due. Call [`Self::done`] when its work is done.
    pub async fn next(&self, priority: Priority) -> ConfigKey {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // What is added from now on wakes this, even before it waits.
            changed.as_mut().enable();
            let wake = match self.lock().take(priority, Instant::now()) {
                Ok(key) => return key,
                Err(wake) => wake,
            };
            match wake {
                Some(at) => {
                    tokio::select! {
                        () = changed => {}
                        () = tokio::time::sleep_until(at) => {}
                    }
                }
                None => changed.await,
            }
        }
    }

    /// Ends the work on a key. A failure makes it due again, later after each failure in a row. `random` is between 0 and 1.
    pub fn done(&self, key: &ConfigKey, success: bool, random: f64) {
        let (wait, urgent) = {
            let mut inner = self.lock();
            let waiting = inner.running.remove(key) == Some(true);
            let due = if waiting { inner.due.remove(key) } else { None };
            let wait = if success {
                inner.failures.remove(key);
                waiting.then_some(Duration::ZERO)
            } else {
                let failures = inner.failures.entry(key.clone()).or_default();
                *failures += 1;
                Some(BACKOFF.jittered_wait(*failures, random))
            };
            (wait, due.is_some_and(|due| due.urgent))
        };
        match wait {
            Some(wait) if urgent => self.add_urgent(key.clone(), wait),
            Some(wait) => self.add(key.clone(), wait),
            None => {}
        }
    }

    /// Removes all keys.
    pub fn clear(&self) {
        *self.lock() = Inner::default();
    }

    /// How many keys are due or wait.
    pub fn len(&self) -> usize {
        self.lock().due.len()
    }

    /// Returns whether no key is due or waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Inner {
    /// Makes the key due. Returns whether that is a change.
    fn put(&mut self, key: ConfigKey, due: Due) -> bool {
        let known = self.due.get(&key).copied();
        let next = known.map_or(due, |known| Due { at: known.at.min(due.at), urgent: known.urgent || due.urgent });
        if known == Some(next) {
            return false;
        }
        self.due.insert(key.clone(), next);
        self.heap(next.urgent).push(Reverse((next.at, key)));
        if self.urgent.len() + self.others.len() > 64 + 2 * self.due.len() {
            let entries = |urgent: bool| {
                let due = self.due.iter().filter(move |(_, due)| due.urgent == urgent);
                due.map(|(key, due)| Reverse((due.at, key.clone()))).collect()
            };
            (self.urgent, self.others) = (entries(true), entries(false));
        }
        true
    }

    fn heap(&mut self, urgent: bool) -> &mut Heap {
        if urgent { &mut self.urgent } else { &mut self.others }
    }

    /// Takes a key that is due at `now`; else returns when the next one is.
    fn take(&mut self, priority: Priority, now: Instant) -> Result<ConfigKey, Option<Instant>> {
        let mut wake = None;
        for urgent in [true, false] {
            if !urgent && priority == Priority::Urgent {
                break;
            }
            while let Some(Reverse((at, key))) = self.heap(urgent).peek().cloned() {
                let counts = self.due.get(&key) == Some(&Due { at, urgent });
                if counts && at > now {
                    wake = wake.into_iter().chain([at]).min();
                    break;
                }
                self.heap(urgent).pop();
                if !counts {
                    continue;
                }
                if let Some(waiting) = self.running.get_mut(&key) {
                    // `done` makes it due again.
                    *waiting = true;
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
        queue.done(&key("a"), true, 0.5);
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
            queue.done(&key("a"), false, 1.0);
        }
        assert_eq!(waits, [0, 200, 400, 800]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_must_go_back_is_served_next_among_a_thousand() {
        let queue = Queue::new(|key| key.name.as_str() == "back-by-spec");
        (0..1000).for_each(|number| queue.add(key(&format!("config-{number}")), Duration::ZERO));
        queue.add(key("back-by-spec"), Duration::ZERO);
        assert_eq!(queue.next(Priority::Any).await, key("back-by-spec"));
        // One that waits already overtakes when its pods are harmed.
        queue.add_urgent(key("config-999"), Duration::ZERO);
        assert_eq!(queue.next(Priority::Urgent).await, key("config-999"));
        assert_eq!(queue.len(), 999);
        let none = tokio::time::timeout(Duration::from_mins(1), queue.next(Priority::Urgent)).await;
        assert!(none.is_err(), "the others are left to other workers");
        // It is being worked on, and comes again as soon as it is done.
        queue.add(key("back-by-spec"), Duration::ZERO);
        queue.add_urgent(key("config-999"), Duration::ZERO);
        let first = queue.next(Priority::Any).await;
        assert!(!["config-999", "back-by-spec"].contains(&first.name.as_str()));
        queue.done(&key("config-999"), true, 0.5);
        assert_eq!(queue.next(Priority::Any).await, key("config-999"));
        // After a failure it is urgent again, but for the wait.
        queue.done(&key("back-by-spec"), false, 1.0);
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
        let inner = queue.lock();
        assert!(inner.urgent.len() + inner.others.len() <= 70 && inner.due.len() == 1);
    }
}
