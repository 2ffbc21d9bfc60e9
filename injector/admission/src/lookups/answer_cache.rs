//! A cache of answers of the API server for a few seconds: many pods of one workload cause the same look-ups.
//!
//! An answer that is due for renewal is still used while one task renews it, so that requests do not wait; an old one
//! is not. That an object does not exist is never cached: it may be created the next moment. But requests that wait for
//! their turn share the answer to a query that began after they came.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Mutex as Turn;
use tokio::time::Instant;

/// The bounds of the age of answers, and of their number.
#[derive(Clone, Copy, Debug)]
pub(super) struct CacheSettings {
    /// The minimum age of an answer that is renewed when used.
    pub(super) renewal_age: Duration,
    /// The maximum age of an answer that is used.
    pub(super) max_age: Duration,
    /// The maximum number of answers.
    pub(super) max_entries: usize,
}

/// The answers by their keys.
pub(super) struct AnswerCache<K, V> {
    settings: CacheSettings,
    entries: Mutex<HashMap<K, Arc<CacheEntry<V>>>>,
}

struct CacheEntry<V> {
    answer: Mutex<Option<CachedAnswer<V>>>,
    /// The number of queries that have begun.
    queries: AtomicU64,
    /// The lock of the task that queries.
    turn: Arc<Turn<()>>,
    created: Instant,
}

#[derive(Clone)]
struct CachedAnswer<V> {
    asked_at: Instant,
    /// The number of the query.
    number: u64,
    /// The value; `None` if the object does not exist.
    value: Option<V>,
}

impl<V: Clone> CacheEntry<V> {
    fn answer(&self) -> Option<CachedAnswer<V>> {
        self.answer.lock().clone()
    }

    /// Returns the value of the last answer, if it has one, and its age.
    fn cached(&self) -> Option<(Duration, V)> {
        self.answer().and_then(|answer| Some((answer.asked_at.elapsed(), answer.value?)))
    }

    fn answer_time(&self) -> Option<Instant> {
        self.answer.lock().as_ref().map(|answer| answer.asked_at)
    }

    /// Begins a query, and returns its number.
    fn begin_query(&self) -> u64 {
        self.queries.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }

    fn put(&self, number: u64, value: Option<V>) {
        let answer = CachedAnswer { asked_at: Instant::now(), number, value };
        *self.answer.lock() = Some(answer);
    }
}

impl<K, V> AnswerCache<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    pub(super) fn new(settings: CacheSettings) -> Self {
        Self { settings, entries: Mutex::default() }
    }

    /// Returns the answer for `key`, from `query` if it is not cached. `None` means that the object does not exist.
    pub(super) async fn get<E, F>(&self, key: &K, query: impl FnOnce() -> F) -> Result<Option<V>, E>
    where
        F: Future<Output = Result<Option<V>, E>> + Send + 'static,
    {
        let entry = self.entry(key);
        let queries_before = entry.queries.load(Ordering::Relaxed);
        if let Some((age, answer)) = entry.cached() {
            if age < self.settings.renewal_age {
                return Ok(Some(answer));
            }
            if age < self.settings.max_age {
                Self::renew(&entry, query);
                return Ok(Some(answer));
            }
        }
        let _turn = entry.turn.lock().await;
        // Another task may have queried in the meantime.
        match entry.answer() {
            Some(answer) if answer.number > queries_before => return Ok(answer.value),
            Some(CachedAnswer { asked_at, value: Some(value), .. })
                if asked_at.elapsed() < self.settings.renewal_age =>
            {
                return Ok(Some(value));
            }
            _ => {}
        }
        let number = entry.begin_query();
        let answer = query().await?;
        entry.put(number, answer.clone());
        Ok(answer)
    }

    /// Queries in the background, unless another task does.
    fn renew<E, F>(entry: &Arc<CacheEntry<V>>, query: impl FnOnce() -> F)
    where
        F: Future<Output = Result<Option<V>, E>> + Send + 'static,
    {
        let Ok(turn) = Arc::clone(&entry.turn).try_lock_owned() else { return };
        let (number, query, entry) = (entry.begin_query(), query(), Arc::clone(entry));
        tokio::spawn(async move {
            let _turn = turn;
            // After a failure the old answer stays until it is too old; then a request gets the error.
            if let Ok(answer) = query.await {
                entry.put(number, answer);
            }
        });
    }

    fn entry(&self, key: &K) -> Arc<CacheEntry<V>> {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get(key) {
            return Arc::clone(entry);
        }
        if entries.len() >= self.settings.max_entries {
            let now = Instant::now();
            let age =
                |entry: &CacheEntry<V>| now.saturating_duration_since(entry.answer_time().unwrap_or(entry.created));
            entries.retain(|_, entry| age(entry) < self.settings.max_age);
            if entries.len() >= self.settings.max_entries {
                let oldest = entries.iter().max_by_key(|(_, entry)| age(entry)).map(|(key, _)| key.clone());
                oldest.and_then(|oldest| entries.remove(&oldest));
            }
        }
        let entry = Arc::new(CacheEntry {
            answer: Mutex::new(None),
            queries: AtomicU64::new(0),
            turn: Arc::default(),
            created: Instant::now(),
        });
        entries.insert(key.clone(), Arc::clone(&entry));
        entry
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    const SETTINGS: CacheSettings =
        CacheSettings { renewal_age: Duration::from_secs(2), max_age: Duration::from_secs(10), max_entries: 3 };

    /// Answers with how often it was asked, a moment later.
    #[derive(Clone, Default)]
    struct Source(Arc<AtomicU32>);

    impl Source {
        async fn ask(self) -> Result<Option<u32>, &'static str> {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Ok(Some(self.0.fetch_add(1, Ordering::Relaxed) + 1))
        }

        async fn asked(&self, recent: &AnswerCache<u32, u32>, key: u32) -> u32 {
            recent.get(&key, || self.clone().ask()).await.unwrap().unwrap()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_task_requests_all_and_a_cached_answer_is_immediate() {
        let (recent, source) = (AnswerCache::new(SETTINGS), Source::default());
        let all = futures::future::join_all((0..50).map(|_| source.asked(&recent, 7))).await;
        assert!(all.iter().all(|&answer| answer == 1), "{all:?}");
        tokio::time::advance(SETTINGS.renewal_age).await;
        let before = Instant::now();
        let all = futures::future::join_all((0..50).map(|_| source.asked(&recent, 7))).await;
        assert!(all.iter().all(|&answer| answer == 1) && before.elapsed() == Duration::ZERO, "{all:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!((source.asked(&recent, 7).await, source.0.load(Ordering::Relaxed)), (2, 2));
        tokio::time::advance(SETTINGS.max_age).await;
        assert_eq!(source.asked(&recent, 7).await, 3, "too old to be given");
    }

    #[tokio::test(start_paused = true)]
    async fn absence_and_failure_are_not_cached() {
        let recent = AnswerCache::<u32, u32>::new(SETTINGS);
        assert_eq!(recent.get(&1, || async { Ok::<_, ()>(None) }).await, Ok(None));
        assert_eq!(recent.get(&1, || async { Err::<Option<u32>, _>("away") }).await, Err("away"));
        assert_eq!(recent.get(&1, || async { Ok::<_, ()>(Some(5)) }).await, Ok(Some(5)));
        tokio::time::advance(SETTINGS.renewal_age).await;
        // A deleted object is returned once more, then not.
        assert_eq!(recent.get(&1, || async { Ok::<_, ()>(None) }).await, Ok(Some(5)));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(recent.get(&1, || async { Ok::<_, ()>(None) }).await, Ok(None));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_wait_share_that_something_does_not_exist() {
        let (recent, source) = (AnswerCache::<u32, u32>::new(SETTINGS), Source::default());
        let absent = async || {
            let source = source.clone();
            recent.get(&7, || async { source.ask().await.map(|_| None) }).await.unwrap()
        };
        let all = futures::future::join_all((0..50).map(|_| absent())).await;
        assert!(all.iter().all(Option::is_none));
        // The first asked before the others came; the next question was about them all.
        assert_eq!(source.0.load(Ordering::Relaxed), 2);
        absent().await;
        assert_eq!(source.0.load(Ordering::Relaxed), 3, "a request that comes later asks anew");
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_is_bounded() {
        let (recent, source) = (AnswerCache::new(SETTINGS), Source::default());
        for key in 0..10 {
            source.asked(&recent, key).await;
        }
        assert_eq!(recent.entries.lock().len(), SETTINGS.max_entries);
        assert_eq!(source.asked(&recent, 9).await, 10, "the youngest are there");
        assert_eq!(source.asked(&recent, 0).await, 11);
    }
}
