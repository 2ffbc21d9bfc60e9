//! The work queue of the controller: each config at most once, when it is due, and never two reconciles of one at once.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nudge_core::keys::ConfigKey;
use nudge_protocol::backoff::Backoff;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Waits after failures in a row.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_mins(1) };

#[derive(Default)]
struct Inner {
    /// When each waiting key is due. The heap may hold older entries, which do not count.
    due: HashMap<ConfigKey, Instant>,
    heap: BinaryHeap<Reverse<(Instant, ConfigKey)>>,
    /// Keys that are being worked on, and whether one became due meanwhile.
    running: HashMap<ConfigKey, bool>,
    failures: HashMap<ConfigKey, u32>,
}

/// The queue. Bounded by the number of configs.
#[derive(Default)]
pub struct Queue {
    inner: Mutex<Inner>,
    changed: Notify,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the key due after `wait`, unless it is due earlier.
    pub fn add(&self, key: ConfigKey, wait: Duration) {
        let at = Instant::now() + wait;
        {
            let mut inner = self.lock();
            if inner.due.get(&key).is_some_and(|due| *due <= at) {
                return;
            }
            inner.due.insert(key.clone(), at);
            inner.heap.push(Reverse((at, key)));
            if inner.heap.len() > 64 + 2 * inner.due.len() {
                inner.heap = inner.due.iter().map(|(key, at)| Reverse((*at, key.clone()))).collect();
            }
        }
        self.changed.notify_one();
    }

    /// Waits for the next key that is due. Call [`Self::done`] when its work is done.
    pub async fn next(&self) -> ConfigKey {
        loop {
            let wake = match self.take(Instant::now()) {
                Ok(key) => return key,
                Err(wake) => wake,
            };
            match wake {
                Some(at) => {
                    tokio::select! {
                        () = self.changed.notified() => {}
                        () = tokio::time::sleep_until(at) => {}
                    }
                }
                None => self.changed.notified().await,
            }
        }
    }

    /// Takes a key that is due at `now`; else returns when the next one is.
    fn take(&self, now: Instant) -> Result<ConfigKey, Option<Instant>> {
        let mut inner = self.lock();
        let mut held = Vec::new();
        let found = loop {
            let Some(Reverse((at, key))) = inner.heap.peek().cloned() else { break Err(None) };
            if inner.due.get(&key) != Some(&at) {
                inner.heap.pop();
                continue;
            }
            if at > now {
                break Err(Some(at));
            }
            inner.heap.pop();
            if inner.running.contains_key(&key) {
                // `done` makes it due again.
                held.push(key);
                continue;
            }
            inner.due.remove(&key);
            inner.running.insert(key.clone(), false);
            break Ok(key);
        };
        for key in held {
            inner.running.insert(key, true);
        }
        found
    }

    /// Ends the work on a key. A failure makes it due again, later after each failure in a row. `random` is between 0 and 1.
    pub fn done(&self, key: &ConfigKey, success: bool, random: f64) {
        let again = {
            let mut inner = self.lock();
            let waiting = inner.running.remove(key) == Some(true);
            if waiting {
                inner.due.remove(key);
            }
            if success {
                inner.failures.remove(key);
                waiting.then_some(Duration::ZERO)
            } else {
                let failures = inner.failures.entry(key.clone()).or_default();
                *failures += 1;
                Some(BACKOFF.jittered(*failures, random))
            }
        };
        if let Some(wait) = again {
            self.add(key.clone(), wait);
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

    /// Whether no key is due or waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
        assert_eq!(queue.next().await, key("soon"));
        assert_eq!(queue.next().await, key("late"));
        assert_eq!(began.elapsed().as_secs(), 2);
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_becomes_due_while_it_is_worked_on_comes_afterwards() {
        let queue = Queue::default();
        queue.add(key("a"), Duration::ZERO);
        assert_eq!(queue.next().await, key("a"));
        queue.add(key("a"), Duration::ZERO);
        queue.add(key("b"), Duration::ZERO);
        assert_eq!(queue.next().await, key("b"));
        assert!(tokio::time::timeout(Duration::from_secs(5), queue.next()).await.is_err());
        queue.done(&key("a"), true, 0.5);
        assert_eq!(queue.next().await, key("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_come_again_later_and_later() {
        let queue = Queue::default();
        queue.add(key("a"), Duration::ZERO);
        let mut waits = Vec::new();
        for _ in 0..4 {
            let began = Instant::now();
            queue.next().await;
            waits.push(began.elapsed().as_millis());
            queue.done(&key("a"), false, 1.0);
        }
        assert_eq!(waits, [0, 200, 400, 800]);
    }
}
