//! Remembers pods that are gone: the API server accepts the token of a deleted pod for some seconds more.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use nudge_core::keys::PodUid;

/// Pods that are remembered.
const BOUND: usize = 16 * 1024;

/// The pods that were removed last.
#[derive(Default)]
pub(super) struct Gone {
    hashes: RandomState,
    inner: Mutex<(HashSet<u64>, VecDeque<u64>)>,
}

impl Gone {
    pub(super) fn add(&self, uid: &PodUid) {
        let hash = self.hashes.hash_one(uid);
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.0.insert(hash) {
            inner.1.push_back(hash);
        }
        if inner.1.len() > BOUND
            && let Some(oldest) = inner.1.pop_front()
        {
            inner.0.remove(&oldest);
        }
    }

    pub(super) fn contains(&self, uid: &PodUid) -> bool {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).0.contains(&self.hashes.hash_one(uid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_known() {
        let uid = |n: usize| PodUid::new(&n.to_string()).unwrap();
        let gone = Gone::default();
        (0..BOUND + 5).for_each(|n| gone.add(&uid(n)));
        assert!(!gone.contains(&uid(4)) && gone.contains(&uid(5)));
        assert_eq!(gone.inner.lock().unwrap().0.len(), BOUND);
    }
}
