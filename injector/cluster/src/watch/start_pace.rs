//! The pace of watches, whose beginnings are spread: hundreds of namespaces, or an API server that is back, must not
//! cause hundreds of requests at once.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until};

use crate::jitter::with_jitter;

/// The time between two starts; each start is a list and a watch.
const START_INTERVAL: Duration = Duration::from_millis(10);
/// The maximum number of beginnings that do not wait after a time without any, so that a small cluster is known at
/// once.
const MAX_BURST: u32 = 50;
/// The maximum number of list pages in memory at the same time.
const MAX_PAGES: usize = 4;

/// The pace of all watches of a process.
#[derive(Debug)]
pub struct Pace {
    next: Mutex<Option<Instant>>,
    pages: Semaphore,
}

impl Default for Pace {
    fn default() -> Self {
        Self { next: Mutex::default(), pages: Semaphore::new(MAX_PAGES) }
    }
}

impl Pace {
    /// Waits until one more watch may begin.
    pub(super) async fn wait_for_turn(&self) {
        let now = Instant::now();
        let turn_time = {
            let mut next = self.next.lock();
            next_turn(&mut next, now, with_jitter(START_INTERVAL))
        };
        if turn_time > now {
            sleep_until(turn_time).await;
        }
    }

    /// Waits until one more page may be read, until the permit is dropped. Each page of a long list waits for its turn.
    pub(super) async fn wait_for_page(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.pages.acquire().await.ok()
    }
}

/// Returns when the next watch may begin. Turns that were not taken are kept, up to [`MAX_BURST`].
fn next_turn(next: &mut Option<Instant>, now: Instant, interval: Duration) -> Instant {
    let oldest = now.checked_sub(START_INTERVAL * MAX_BURST).unwrap_or(now);
    let turn_time = next.unwrap_or(oldest).max(oldest);
    *next = Some(turn_time + interval);
    turn_time
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_begin_at_once_and_many_are_spread() {
        let (mut next, start) = (None, Instant::now() + Duration::from_mins(1));
        let waits: Vec<_> =
            (0..1000).map(|_| next_turn(&mut next, start, START_INTERVAL).saturating_duration_since(start)).collect();
        assert_eq!(waits.iter().filter(|wait| wait.is_zero()).count(), usize::try_from(MAX_BURST).unwrap() + 1);
        for second in 0..9 {
            let from = Duration::from_secs(second);
            let begun = waits.iter().filter(|wait| **wait >= from && **wait < from + Duration::from_secs(1)).count();
            assert!(begun <= 152, "{begun} in second {second}");
        }
        let later = start + Duration::from_mins(1);
        assert!(next_turn(&mut next, later, START_INTERVAL) <= later, "turns that were not taken are kept");
    }
}
