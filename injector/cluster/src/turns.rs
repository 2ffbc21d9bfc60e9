//! Turns for expensive work, such as requests to other servers. All namespaces together do a bounded amount of it at
//! the same time, and each of them no more than its share: all of its servers may be slow. So a namespace with much
//! work does not keep the others waiting.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The turns of all namespaces, of which each has a share.
pub struct Turns {
    total: Arc<Semaphore>,
    share: usize,
    namespaces: Mutex<BTreeMap<String, Arc<Semaphore>>>,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub struct Turn {
    _total: Option<OwnedSemaphorePermit>,
    _share: Option<OwnedSemaphorePermit>,
}

impl Turns {
    /// Returns turns for `total` at the same time, and for `share` of one namespace.
    pub fn new(total: usize, share: usize) -> Self {
        Self { total: Arc::new(Semaphore::new(total)), share, namespaces: Mutex::default() }
    }

    /// Waits for a turn. Each namespace has a queue, and stands in the common queue with at most its share.
    pub async fn take(&self, namespace: &str) -> Turn {
        self.take_many(namespace, 1).await
    }

    /// Waits for a turn of this amount, which is reduced to the share of a namespace.
    pub async fn take_many(&self, namespace: &str, amount: u32) -> Turn {
        let amount = u32::try_from(self.share).map_or(amount, |share| amount.min(share));
        // The semaphores are never closed.
        let share = self.share_of(namespace).acquire_many_owned(amount).await.ok();
        let total = Arc::clone(&self.total).acquire_many_owned(amount).await.ok();
        Turn { _total: total, _share: share }
    }

    /// Takes a turn of this amount, if there is as much now.
    pub fn try_take(&self, namespace: &str, amount: u32) -> Option<Turn> {
        let share = self.share_of(namespace).try_acquire_many_owned(amount).ok()?;
        let total = Arc::clone(&self.total).try_acquire_many_owned(amount).ok()?;
        Some(Turn { _total: Some(total), _share: Some(share) })
    }

    fn share_of(&self, namespace: &str) -> Arc<Semaphore> {
        let mut namespaces = self.namespaces.lock();
        // A share without holders or waiters equals a new share.
        namespaces.retain(|_, share| Arc::strong_count(share) > 1);
        let share = namespaces.entry(namespace.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(self.share)));
        Arc::clone(share)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_namespace_keeps_no_other_waiting() {
        let turns = Arc::new(Turns::new(32, 4));
        let slow = async |turns: Arc<Turns>, namespace: String| {
            let _turn = turns.take(&namespace).await;
            sleep(Duration::from_secs(10)).await;
        };
        // 1,000 queries of a namespace whose server is slow, and some of others'.
        for number in 0..1_000 {
            tokio::spawn(slow(Arc::clone(&turns), "slow".to_owned()));
            if number < 20 {
                tokio::spawn(slow(Arc::clone(&turns), format!("ns-{number}")));
            }
        }
        tokio::task::yield_now().await;
        let began = Instant::now();
        drop(turns.take("quick").await);
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        // All together are no more than 32, of one no more than 4.
        assert_eq!(turns.total.available_permits(), 32 - 4 - 20);
        // Nothing is kept of namespaces that ask no more.
        sleep(Duration::from_secs(20)).await;
        drop(turns.take("quick").await);
        assert!(turns.namespaces.lock().len() <= 2);
    }

    #[tokio::test]
    async fn a_share_is_of_amounts_and_no_namespace_has_more() {
        let turns = Turns::new(10, 4);
        let three = turns.try_take("a", 3).unwrap();
        assert!(turns.try_take("a", 2).is_none() && turns.try_take("a", 5).is_none());
        let one = turns.try_take("a", 1).unwrap();
        let others = [turns.try_take("b", 4).unwrap(), turns.try_take("c", 2).unwrap()];
        assert!(turns.try_take("c", 1).is_none(), "all have 10");
        drop((three, one));
        let waited = turns.take_many("a", 100).await;
        drop(others);
        assert_eq!(turns.total.available_permits(), 6, "no more is waited for than there may be");
        drop(waited);
        assert_eq!(turns.total.available_permits(), 10);
    }
}
