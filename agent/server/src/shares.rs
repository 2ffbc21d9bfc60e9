//! A limited resource, such as concurrent handshakes. No peer has more than a quarter of it. A peer that needs more
//! waits in a queue of its own, so the common queue holds no more than a quarter from each.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, Weak};

use nudge_protocol::mutex::lock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::slots::Peer;

/// The queues of all takers of a limited resource, one for each.
#[derive(Debug)]
pub struct Queues<K> {
    share: u32,
    inner: Mutex<Inner<K>>,
}

/// The queues of the takers that hold or wait for units; the others are dropped now and then.
#[derive(Debug)]
struct Inner<K> {
    by_taker: HashMap<K, Weak<Semaphore>>,
    prune_at: usize,
}

impl<K: Eq + Hash> Queues<K> {
    /// Creates queues; each gives at most `share` units at the same time.
    pub fn new(share: u32) -> Self {
        Self { share, inner: Mutex::new(Inner { by_taker: HashMap::new(), prune_at: 0 }) }
    }

    /// Waits in the queue of `taker` for units of its share, or for a whole share if that is less.
    pub async fn take(&self, taker: K, units: u32) -> Option<OwnedSemaphorePermit> {
        // The queue is never closed. A permit keeps its queue alive.
        self.queue(taker).acquire_many_owned(units.min(self.share)).await.ok()
    }

    /// Takes the units without waiting, if they are available now.
    pub fn try_take(&self, taker: K, units: u32) -> Option<OwnedSemaphorePermit> {
        self.queue(taker).try_acquire_many_owned(units.min(self.share)).ok()
    }

    fn queue(&self, taker: K) -> Arc<Semaphore> {
        let mut inner = lock(&self.inner);
        if let Some(queue) = inner.by_taker.get(&taker).and_then(Weak::upgrade) {
            return queue;
        }
        if inner.by_taker.len() >= inner.prune_at {
            inner.by_taker.retain(|_, queue| queue.strong_count() > 0);
            inner.prune_at = 2 * inner.by_taker.len() + 16;
        }
        let queue = Arc::new(Semaphore::new(usize::try_from(self.share).unwrap_or(usize::MAX)));
        inner.by_taker.insert(taker, Arc::downgrade(&queue));
        queue
    }
}

/// A resource with a fixed number of units.
#[derive(Debug)]
pub struct Shares {
    total: Arc<Semaphore>,
    queues: Queues<Peer>,
}

impl Shares {
    /// Creates a resource of `total` units. `largest` is the maximum number of units that one taker may need at once: a
    /// peer's share is at least as large.
    pub fn new(total: usize, largest: usize) -> Self {
        let total = total.max(largest);
        let share = u32::try_from(total.div_ceil(4).max(largest)).unwrap_or(u32::MAX);
        Self { total: Arc::new(Semaphore::new(total)), queues: Queues::new(share) }
    }

    /// Returns the maximum number of units that one peer may hold.
    pub fn share(&self) -> u32 {
        self.queues.share
    }

    /// Waits for `units`, or for a whole share if that is less.
    pub async fn take(&self, peer: Peer, units: u32) -> SharePermit {
        let units = units.min(self.share());
        let of_peer = self.queues.take(peer, units).await;
        // The semaphore is never closed.
        let of_total = Arc::clone(&self.total).acquire_many_owned(units).await.ok();
        SharePermit { _of_peer: of_peer, _of_total: of_total }
    }
}

/// The units that a peer holds; free again on drop.
#[derive(Debug)]
pub struct SharePermit {
    _of_peer: Option<OwnedSemaphorePermit>,
    _of_total: Option<OwnedSemaphorePermit>,
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use futures::FutureExt as _;

    use super::*;

    fn peer(host: u8) -> Peer {
        IpAddr::from([10, 0, 0, host]).into()
    }

    #[test]
    fn no_peer_has_more_than_a_quarter() {
        let shares = Shares::new(8, 1);
        let take = |host, units| shares.take(peer(host), units).now_or_never();
        let permits = [take(1, 1), take(1, 1), take(1, 1)];
        assert_eq!(permits.each_ref().map(Option::is_some), [true, true, false]);
        let others: Vec<_> = (2..5).map(|host| take(host, 2).unwrap()).collect();
        // Nothing is left, and a wait that is given up keeps no units.
        assert!(take(5, 1).is_none());
        drop(permits);
        assert!(take(5, 2).is_some() && take(1, 2).is_some());
        drop(others);
        assert_eq!(shares.total.available_permits(), 8);
    }

    #[test]
    fn the_largest_piece_fits_and_more_is_cut_to_it() {
        let shares = Shares::new(8, 6);
        let large = shares.take(peer(1), 100).now_or_never().unwrap();
        assert!(shares.take(peer(2), 3).now_or_never().is_none());
        assert!(shares.take(peer(2), 2).now_or_never().is_some());
        drop(large);
    }

    #[test]
    fn queues_of_peers_that_left_are_dropped() {
        let shares = Shares::new(8, 1);
        for host in 0..200 {
            drop(shares.take(peer(host), 1).now_or_never());
        }
        assert!(shares.queues.inner.lock().unwrap().by_taker.len() <= 32);
    }
}
