//! Spreads the beginnings of watches: hundreds of namespaces, or an API server that is back, must not mean as many requests at once.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until};

use crate::jitter::with_jitter;

/// Time between two beginnings, each of which is a list and a watch.
const START_INTERVAL: Duration = Duration::from_millis(10);
/// Beginnings that do not wait after a time without any: a small cluster is known at once.
const BURST: u32 = 50;
/// Pages of lists at the same time, each of which is in memory.
const PAGES: usize = 4;

/// The pace of all watches of a process.
#[derive(Debug)]
pub struct Pace {
    next: Mutex<Option<Instant>>,
    pages: Semaphore,
}

impl Default for Pace {
    fn default() -> Self {
        Self { next: Mutex::default(), pages: Semaphore::new(PAGES) }
    }
}

impl Pace {
    /// Waits until one more watch may begin.
    pub(super) async fn turn(&self) {
        let now = Instant::now();
        let at = {
            let mut next = self.next.lock();
            turn_at(&mut next, now, with_jitter(START_INTERVAL))
        };
        if at > now {
            sleep_until(at).await;
        }
    }

    /// Waits until one more page may be asked for; it is done with when what this returns ends. Each page of a long list waits for its turn.
    pub(super) async fn page(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.pages.acquire().await.ok()
    }
}

/// When the next one may begin. The turns that were not taken before are kept, up to [`BURST`].
fn turn_at(next: &mut Option<Instant>, now: Instant, every: Duration) -> Instant {
    let oldest = now.checked_sub(START_INTERVAL * BURST).unwrap_or(now);
    let at = next.unwrap_or(oldest).max(oldest);
    *next = Some(at + every);
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_begin_at_once_and_many_are_spread() {
        let (mut next, start) = (None, Instant::now() + Duration::from_mins(1));
        let waits: Vec<_> =
            (0..1000).map(|_| turn_at(&mut next, start, START_INTERVAL).saturating_duration_since(start)).collect();
        assert_eq!(waits.iter().filter(|wait| wait.is_zero()).count(), usize::try_from(BURST).unwrap() + 1);
        for second in 0..9 {
            let from = Duration::from_secs(second);
            let begun = waits.iter().filter(|wait| **wait >= from && **wait < from + Duration::from_secs(1)).count();
            assert!(begun <= 152, "{begun} in second {second}");
        }
        let later = start + Duration::from_mins(1);
        assert!(turn_at(&mut next, later, START_INTERVAL) <= later, "turns that were not taken are kept");
    }
}
