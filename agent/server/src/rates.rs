//! A rate for each of many keys, such as the addresses of clients, in a bounded table.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nudge_protocol::locked::locked;

/// How often a full table is searched for keys that have not been used for long.
const PRUNE_INTERVAL: Duration = Duration::from_secs(1);

/// How much a key may take.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// In the long run.
    pub per_second: u32,
    /// At once, after a while of rest.
    pub burst: u32,
}

/// The rates of all keys. Keys for which a full table has no place share one rate.
#[derive(Debug)]
pub struct Rates<K> {
    rate: Rate,
    most: usize,
    table: Mutex<Table<K>>,
}

#[derive(Debug)]
struct Table<K> {
    by_key: HashMap<K, Bucket>,
    others: Bucket,
    tidied: Instant,
}

/// What is left of a burst.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    fn full(rate: Rate, now: Instant) -> Self {
        Self { left: f64::from(rate.burst), at: now }
    }

    fn refill(&mut self, rate: Rate, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + passed * f64::from(rate.per_second)).min(f64::from(rate.burst));
        self.at = self.at.max(now);
    }

    fn take(&mut self, rate: Rate, now: Instant) -> bool {
        self.refill(rate, now);
        let taken = self.left >= 1.0;
        if taken {
            self.left -= 1.0;
        }
        taken
    }
}

impl<K: Eq + Hash> Rates<K> {
    /// `rate` for each of at most `most` keys at a time.
    pub fn new(rate: Rate, most: usize, now: Instant) -> Self {
        let table = Table { by_key: HashMap::new(), others: Bucket::full(rate, now), tidied: now };
        Self { rate, most, table: Mutex::new(table) }
    }

    /// The rate of each key.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Returns whether `key` may take one at `now`, and takes nothing.
    pub fn has(&self, key: &K, now: Instant) -> bool {
        let table = locked(&self.table);
        let full = table.by_key.len() >= self.most;
        let bucket = table.by_key.get(key).copied().or_else(|| full.then_some(table.others));
        bucket.is_none_or(|mut bucket| bucket.take(self.rate, now))
    }

    /// Takes one for `key`; false where it has taken all that it may at `now`.
    pub fn take(&self, key: K, now: Instant) -> bool {
        let rate = self.rate;
        let mut table = locked(&self.table);
        let table = &mut *table;
        if let Some(bucket) = table.by_key.get_mut(&key) {
            return bucket.take(rate, now);
        }
        if table.by_key.len() >= self.most && now.saturating_duration_since(table.tidied) >= PRUNE_INTERVAL {
            table.tidied = now;
            // One that is full again says nothing that a new one would not.
            table.by_key.retain(|_, bucket| {
                bucket.refill(rate, now);
                bucket.left < f64::from(rate.burst)
            });
        }
        if table.by_key.len() >= self.most {
            return table.others.take(rate, now);
        }
        table.by_key.entry(key).or_insert_with(|| Bucket::full(rate, now)).take(rate, now)
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
        let taken = |key, at| (0..10).filter(|_| rates.take(key, at)).count();
        assert!((0..10).all(|_| rates.has(&"a", began)), "a look takes nothing");
        assert_eq!((taken("a", began), taken("b", began)), (3, 3));
        assert!(!rates.has(&"a", began) && rates.has(&"a", began + second(1)));
        assert_eq!((taken("a", began + second(1)), taken("a", began + second(1))), (2, 0));
        assert_eq!(taken("b", began + second(100)), 3, "no more than a burst is saved up");
        assert_eq!(taken("a", began), 0, "a clock that steps back gives nothing");
    }

    #[test]
    fn a_full_table_keeps_those_it_has_and_its_size() {
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
        // Those that have rested make room.
        let later = began + second(10);
        assert!((100..104).all(|key| rates.take(key, later)));
        assert_eq!(rates.table.lock().unwrap().by_key.len(), 4);
    }
}
