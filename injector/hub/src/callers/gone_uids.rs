//! Pods and service accounts that are gone, whose tokens the API server accepts for some seconds more.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};

use parking_lot::Mutex;

/// The maximum number of uids that are remembered.
const MAX_UIDS: usize = 16 * 1024;

/// The uids of the pods and service accounts that were removed last.
#[derive(Default)]
pub(crate) struct GoneUids {
    hasher: RandomState,
    hashes: Mutex<OrderedHashes>,
}

#[derive(Default)]
struct OrderedHashes {
    set: HashSet<u64>,
    /// The hashes, the oldest first.
    order: VecDeque<u64>,
}

impl GoneUids {
    pub(crate) fn add(&self, uid: &str) {
        let hash = self.hasher.hash_one(uid);
        let mut hashes = self.hashes.lock();
        if hashes.set.insert(hash) {
            hashes.order.push_back(hash);
        }
        if hashes.order.len() > MAX_UIDS
            && let Some(oldest) = hashes.order.pop_front()
        {
            hashes.set.remove(&oldest);
        }
    }

    pub(super) fn contains(&self, uid: &str) -> bool {
        self.hashes.lock().set.contains(&self.hasher.hash_one(uid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_known() {
        let gone = GoneUids::default();
        (0..MAX_UIDS + 5).for_each(|n| gone.add(&n.to_string()));
        assert!(!gone.contains("4") && gone.contains("5"));
        assert_eq!(gone.hashes.lock().set.len(), MAX_UIDS);
    }
}
