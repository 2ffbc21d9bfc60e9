//! Remembers pods and service accounts that are gone: the API server accepts their tokens for some seconds more.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};

use parking_lot::Mutex;

/// Uids that are remembered.
const BOUND: usize = 16 * 1024;

/// What was removed last, by its uid.
#[derive(Default)]
pub(super) struct Gone {
    hashes: RandomState,
    inner: Mutex<(HashSet<u64>, VecDeque<u64>)>,
}

impl Gone {
    pub(super) fn add(&self, uid: &str) {
        let hash = self.hashes.hash_one(uid);
        let mut inner = self.inner.lock();
        if inner.0.insert(hash) {
            inner.1.push_back(hash);
        }
        if inner.1.len() > BOUND
            && let Some(oldest) = inner.1.pop_front()
        {
            inner.0.remove(&oldest);
        }
    }

    pub(super) fn contains(&self, uid: &str) -> bool {
        self.inner.lock().0.contains(&self.hashes.hash_one(uid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_known() {
        let gone = Gone::default();
        (0..BOUND + 5).for_each(|n| gone.add(&n.to_string()));
        assert!(!gone.contains("4") && gone.contains("5"));
        assert_eq!(gone.inner.lock().0.len(), BOUND);
    }
}
