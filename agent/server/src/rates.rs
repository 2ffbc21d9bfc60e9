//! A rate for each of many keys, such as the addresses of clients, in a bounded table.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nudge_protocol::mutex::lock;

/// The shortest time between two searches of a full table for keys that have not been used for long.
const PRUNE_INTERVAL: Duration = Duration::from_secs(1);

/// The rate of units that a key may take.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// The number of units that a key may take in each second in the long run.
    pub per_second: u32,
    /// The number of units that a key may take at once after a while of rest.
    pub burst: u32,
}

/// The rates of all keys. Keys that do not fit into a full table share one rate.
#[derive(Debug)]
pub struct Rates<K> {
    rate: Rate,
    max_keys: usize,
    table: Mutex<RateTable<K>>,
}

#[derive(Debug)]
struct RateTable<K> {
    by_key: HashMap<K, Bucket>,
    others: Bucket,
    pruned_at: Instant,
}

/// The rest of a burst.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: f64,
    refilled_at: Instant,
}

impl Bucket {
    fn new(rate: Rate, now: Instant) -> Self {
        Self { left: f64::from(rate.burst), refilled_at: now }
    }

    fn refill(&mut self, rate: Rate, now: Instant) {
        let passed = now.saturating_duration_since(self.refilled_at).as_secs_f64();
        self.left = (self.left + passed * f64::from(rate.per_second)).min(f64::from(rate.burst));
        self.refilled_at = self.refilled_at.max(now);
    }

    fn try_take(&mut self, rate: Rate, now: Instant) -> bool {
        self.refill(rate, now);
        let has_unit = self.left >= 1.0;
        if has_unit {
            self.left -= 1.0;
        }
        has_unit
    }
}

impl<K: Eq + Hash> Rates<K> {
    /// Creates a table that gives `rate` to each of at most `max_keys` keys at a time.
    pub fn new(rate: Rate, max_keys: usize, now: Instant) -> Self {
        let table = RateTable { by_key: HashMap::new(), others: Bucket::new(rate, now), pruned_at: now };
        Self { rate, max_keys, table: Mutex::new(table) }
    }

    /// Returns the rate of each key.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Returns whether `key` may take one at `now`, and takes nothing.
    pub fn is_allowed(&self, key: &K, now: Instant) -> bool {
        let table = lock(&self.table);
        let full = table.by_key.len() >= self.max_keys;
        let bucket = table.by_key.get(key).copied().or_else(|| full.then_some(table.others));
        bucket.is_none_or(|mut bucket| bucket.try_take(self.rate, now))
    }

    /// Takes one unit for `key`. Returns `false` if the rate of the key allows no more at `now`.
    pub fn take(&self, key: K, now: Instant) -> bool {
        let rate = self.rate;
        let mut table = lock(&self.table);
        let table = &mut *table;
        if let Some(bucket) = table.by_key.get_mut(&key) {
            return bucket.try_take(rate, now);
        }
        if table.by_key.len() >= self.max_keys && now.saturating_duration_since(table.pruned_at) >= PRUNE_INTERVAL {
            table.pruned_at = now;
            // A bucket that is full again says nothing that a new one would not.
            table.by_key.retain(|_, bucket| {
                bucket.refill(rate, now);
                bucket.left < f64::from(rate.burst)
            });
        }
        if table.by_key.len() >= self.max_keys {
            return table.others.try_take(rate, now);
        }
        table.by_key.entry(key).or_insert_with(|| Bucket::new(rate, now)).try_take(rate, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { per_second: 2, burst: 3 };

    fn second(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn each_key_has_a_burst_and_then_its_rate() {
        let began = Instant::now();
        let rates = Rates::new(RATE, 10, began);
        let count_taken = |key, at| (0..10).filter(|_| rates.take(key, at)).count();
        assert!((0..10).all(|_| rates.is_allowed(&"a", began)), "a look takes nothing");
        assert_eq!((count_taken("a", began), count_taken("b", began)), (3, 3));
        assert!(!rates.is_allowed(&"a", began) && rates.is_allowed(&"a", began + second(1)));
        assert_eq!((count_taken("a", began + second(1)), count_taken("a", began + second(1))), (2, 0));
        assert_eq!(count_taken("b", began + second(100)), 3, "no more than a burst is saved up");
        assert_eq!(count_taken("a", began), 0, "a clock that steps back gives nothing");
    }

    #[test]
    fn a_full_table_keeps_its_keys_and_its_size() {
        let began = Instant::now();
        let rates = Rates::new(RATE, 4, began);
        for key in 0..4 {
            assert!(rates.take(key, began));
        }
        // All others together have one rate, and take nothing from those that were there.
        let others = (100..200).filter(|&key| rates.take(key, began)).count();
        assert_eq!(others, 3);
        assert!((0..4).all(|key| rates.take(key, began)));
        assert_eq!(rates.table.lock().unwrap().by_key.len(), 4);
        // Keys that have rested make room.
        let later = began + second(10);
        assert!((100..104).all(|key| rates.take(key, later)));
        assert_eq!(rates.table.lock().unwrap().by_key.len(), 4);
    }
}
