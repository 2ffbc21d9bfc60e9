//! Remembers pods and service accounts that are gone: the API server accepts their tokens for some seconds more.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};

use parking_lot::Mutex;

/// The maximum number of uids that are remembered.
const BOUND: usize = 16 * 1024;

/// The uids of what was removed last.
#[derive(Default)]
pub(super) struct GoneUids {
    hashes: RandomState,
    /// The hashes, and their order.
    latest: Mutex<(HashSet<u64>, VecDeque<u64>)>,
}

impl GoneUids {
    pub(super) fn add(&self, uid: &str) {
        let hash = self.hashes.hash_one(uid);
        let mut latest = self.latest.lock();
        if latest.0.insert(hash) {
            latest.1.push_back(hash);
        }
        if latest.1.len() > BOUND
            && let Some(oldest) = latest.1.pop_front()
        {
            latest.0.remove(&oldest);
        }
    }

    pub(super) fn contains(&self, uid: &str) -> bool {
        self.latest.lock().0.contains(&self.hashes.hash_one(uid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_known() {
        let gone = GoneUids::default();
        (0..BOUND + 5).for_each(|n| gone.add(&n.to_string()));
        assert!(!gone.contains("4") && gone.contains("5"));
        assert_eq!(gone.latest.lock().0.len(), BOUND);
    }
}
