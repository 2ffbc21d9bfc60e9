//! Whether what is known is what the API server has.

use std::time::{Duration, Instant};

use super::Index;
use crate::watch_health::WatchHealth;

impl Index {
    /// Adds the health of a watch.
    pub fn add_health(&self, health: WatchHealth) {
        self.lock().healths.push(health);
    }

    /// How long ago each watch heard from the server; `None` before its first list.
    pub fn ages(&self) -> Vec<(&'static str, Option<Duration>)> {
        self.lock().healths.iter().map(|health| (health.what, health.age())).collect()
    }

    /// A watch that has heard nothing for longer than `longest`, or never.
    pub fn silent(&self, longest: Duration) -> Option<(&'static str, Option<Duration>)> {
        self.ages().into_iter().find(|(_, age)| age.is_none_or(|age| age > longest))
    }

    /// A watch that may have missed something: it was interrupted, or is to be confirmed, and the server has not confirmed it yet.
    pub fn doubted(&self) -> Option<&'static str> {
        self.lock().healths.iter().find(|health| health.is_doubted()).map(|health| health.what)
    }

    /// How long ago a watch was last in doubt for longer than a moment.
    pub fn last_blind(&self) -> Option<Duration> {
        self.lock().healths.iter().filter_map(WatchHealth::last_blind).max().map(|at| at.elapsed())
    }

    /// Has the server confirm that everything until `until` is known; fails with a watch that it has not confirmed within `longest`.
    pub async fn confirm(&self, until: Instant, longest: Duration) -> Result<(), &'static str> {
        let open = || self.lock().healths.iter().find(|health| !health.is_confirmed(until)).map(|health| health.what);
        for health in self.lock().healths.iter().filter(|health| !health.is_confirmed(until)) {
            health.ask();
        }
        let confirmed = async {
            while open().is_some() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = tokio::time::timeout(longest, confirmed).await;
        open().map_or(Ok(()), Err)
    }

    /// Waits until everything was listed at least once.
    pub async fn synced(&self) {
        while !self.is_synced() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Everything was listed at least once.
    pub fn is_synced(&self) -> bool {
        let ages = self.ages();
        !ages.is_empty() && ages.iter().all(|(_, age)| age.is_some())
    }
}
