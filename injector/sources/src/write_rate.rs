//! How often sources write. A namespace has one rate, however many sources it has, and of whatever object they all are.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// The time from one write to the next.
const PERIOD: Duration = Duration::from_millis(50);
/// The largest burst.
const BURST: u32 = 100;

/// The writes of all namespaces.
#[derive(Default)]
pub struct Rates(Mutex<BTreeMap<String, Instant>>);

impl Rates {
    /// Waits until the namespace may write.
    pub(crate) async fn wait(&self, namespace: &str) {
        sleep_until(self.next(namespace, Instant::now())).await;
    }

    /// Takes one write. Returns when it may be made.
    fn next(&self, namespace: &str, now: Instant) -> Instant {
        // When all that was taken would have been written one after another.
        let mut ends = self.0.lock();
        ends.retain(|_, end| *end > now);
        let end = ends.entry(namespace.to_owned()).or_insert(now);
        let at = end.checked_sub(PERIOD.saturating_mul(BURST)).map_or(now, |at| at.max(now));
        *end = end.checked_add(PERIOD).unwrap_or(now);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_namespace_writes_a_burst_and_then_steadily_and_no_other_waits() {
        let (rates, began) = (Rates::default(), Instant::now());
        for _ in 0..BURST {
            rates.wait("many").await;
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        for _ in 0..100 {
            rates.wait("many").await;
        }
        let took = began.elapsed();
        assert!(took >= PERIOD * 99 && took <= PERIOD * 101, "{took:?}");
        let before = Instant::now();
        rates.wait("other").await;
        assert_eq!(before.elapsed(), Duration::ZERO);
        tokio::time::sleep(PERIOD * BURST * 2).await;
        rates.wait("other").await;
        assert_eq!(rates.0.lock().len(), 1, "nothing is kept of those who write no more");
    }
}
