//! The rate of the sources' writes. All sources of a namespace share one rate, whichever objects they write.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// The time from one write to the next, after a burst.
const WRITE_PERIOD: Duration = Duration::from_millis(50);
/// The maximum number of writes in a burst.
const MAX_BURST: u32 = 100;

/// The rates of all namespaces. For each namespace, the map has the time when all admitted writes would be done if they
/// were made one after another.
#[derive(Default)]
pub struct Rates(Mutex<BTreeMap<String, Instant>>);

impl Rates {
    /// Waits until the namespace may write.
    pub(crate) async fn wait(&self, namespace: &str) {
        sleep_until(self.take_write(namespace, Instant::now())).await;
    }

    /// Takes one write. Returns the earliest time of the write.
    fn take_write(&self, namespace: &str, now: Instant) -> Instant {
        let mut end_times = self.0.lock();
        end_times.retain(|_, end_time| *end_time > now);
        let end_time = end_times.entry(namespace.to_owned()).or_insert(now);
        let free_at =
            end_time.checked_sub(WRITE_PERIOD.saturating_mul(MAX_BURST)).map_or(now, |free_at| free_at.max(now));
        *end_time = end_time.checked_add(WRITE_PERIOD).unwrap_or(now);
        free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_namespace_writes_a_burst_and_then_steadily_and_no_other_waits() {
        let (rates, began) = (Rates::default(), Instant::now());
        for _ in 0..MAX_BURST {
            rates.wait("many").await;
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        for _ in 0..100 {
            rates.wait("many").await;
        }
        let took = began.elapsed();
        assert!(took >= WRITE_PERIOD * 99 && took <= WRITE_PERIOD * 101, "{took:?}");
        let before = Instant::now();
        rates.wait("other").await;
        assert_eq!(before.elapsed(), Duration::ZERO);
        tokio::time::sleep(WRITE_PERIOD * MAX_BURST * 2).await;
        rates.wait("other").await;
        assert_eq!(rates.0.lock().len(), 1, "nothing is kept of those who write no more");
    }
}
