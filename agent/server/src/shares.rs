//! Something that there is only so much of, such as handshakes at the same time, of which no peer has more than a quarter. A peer that
//! wants more waits in a line of its own, so the line for all holds no more than a quarter of each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::slots::Peer;

/// See the module's text.
#[derive(Debug)]
pub struct Shares {
    all: Arc<Semaphore>,
    share: u32,
    lines: Mutex<Lines>,
}

/// The lines of clients that have or want something; those of others are dropped now and then.
#[derive(Debug, Default)]
struct Lines {
    by_peer: HashMap<Peer, Weak<Semaphore>>,
    tidy_at: usize,
}

impl Shares {
    /// So much of it; what one taker may need in one piece is not more than a peer's share.
    pub fn new(all: usize, largest: usize) -> Self {
        let all = all.max(largest);
        let share = u32::try_from(all.div_ceil(4).max(largest)).unwrap_or(u32::MAX);
        Self { all: Arc::new(Semaphore::new(all)), share, lines: Mutex::default() }
    }

    fn line(&self, peer: Peer) -> Arc<Semaphore> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = lines.by_peer.get(&peer).and_then(Weak::upgrade) {
            return line;
        }
        if lines.by_peer.len() >= lines.tidy_at {
            lines.by_peer.retain(|_, line| line.strong_count() > 0);
            lines.tidy_at = 2 * lines.by_peer.len() + 16;
        }
        let line = Arc::new(Semaphore::new(usize::try_from(self.share).unwrap_or(usize::MAX)));
        lines.by_peer.insert(peer, Arc::downgrade(&line));
        line
    }

    /// The most that one peer may have.
    pub fn share(&self) -> u32 {
        self.share
    }

    /// Waits for so much of it, or for a share, which is less.
    pub async fn take(&self, peer: Peer, units: u32) -> Portion {
        let units = units.min(self.share);
        // Neither is ever closed. The own line keeps its semaphore alive.
        let own = self.line(peer).acquire_many_owned(units).await.ok();
        let all = Arc::clone(&self.all).acquire_many_owned(units).await.ok();
        Portion { _own: own, _all: all }
    }
}

/// What somebody has taken; given back on drop.
#[derive(Debug)]
pub struct Portion {
    _own: Option<OwnedSemaphorePermit>,
    _all: Option<OwnedSemaphorePermit>,
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
    fn nobody_has_more_than_a_quarter() {
        let shares = Shares::new(8, 1);
        let take = |host, units| shares.take(peer(host), units).now_or_never();
        let one = [take(1, 1), take(1, 1), take(1, 1)];
        assert_eq!(one.each_ref().map(Option::is_some), [true, true, false]);
        let others: Vec<_> = (2..5).map(|host| take(host, 2).unwrap()).collect();
        // Now there is nothing left, and what somebody waits for in vain is given back.
        assert!(take(5, 1).is_none());
        drop(one);
        assert!(take(5, 2).is_some() && take(1, 2).is_some());
        drop(others);
        assert_eq!(shares.all.available_permits(), 8);
    }

    #[test]
    fn the_largest_piece_fits_and_more_is_that_much() {
        let shares = Shares::new(8, 6);
        let large = shares.take(peer(1), 100).now_or_never().unwrap();
        assert!(shares.take(peer(2), 3).now_or_never().is_none());
        assert!(shares.take(peer(2), 2).now_or_never().is_some());
        drop(large);
    }

    #[test]
    fn clients_that_are_gone_are_forgotten() {
        let shares = Shares::new(8, 1);
        for host in 0..200 {
            drop(shares.take(peer(host), 1).now_or_never());
        }
        assert!(shares.lines.lock().unwrap().by_peer.len() <= 32);
    }
}
