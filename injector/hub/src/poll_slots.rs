//! Held polls per pod: when a pod holds more than its share, the oldest is answered.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// The held polls of all pods.
pub(super) struct PollSlots {
    limit: usize,
    by_uid: Mutex<HashMap<String, VecDeque<Arc<Notify>>>>,
}

impl PollSlots {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, by_uid: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, VecDeque<Arc<Notify>>>> {
        self.by_uid.lock()
    }

    /// Takes a slot for a poll of the pod.
    pub(super) fn take(self: &Arc<Self>, uid: &str) -> PollSlot {
        let lost = Arc::new(Notify::new());
        let mut by_uid = self.lock();
        let poll_slots = by_uid.entry(uid.to_owned()).or_default();
        poll_slots.push_back(Arc::clone(&lost));
        if poll_slots.len() > self.limit
            && let Some(oldest) = poll_slots.pop_front()
        {
            oldest.notify_one();
        }
        drop(by_uid);
        PollSlot { poll_slots: Arc::clone(self), uid: uid.into(), lost }
    }

    /// Whether a poll of the pod is held here.
    pub(super) fn has(&self, uid: &str) -> bool {
        self.lock().contains_key(uid)
    }
}

/// The slot of one poll; free again on drop.
pub(super) struct PollSlot {
    poll_slots: Arc<PollSlots>,
    uid: Box<str>,
    lost: Arc<Notify>,
}

impl PollSlot {
    /// Resolves when another poll has taken the slot.
    pub(super) async fn lost(&self) {
        self.lost.notified().await;
    }
}

impl Drop for PollSlot {
    fn drop(&mut self) {
        let mut by_uid = self.poll_slots.lock();
        if let Some(poll_slots) = by_uid.get_mut(&*self.uid) {
            poll_slots.retain(|poll_slot| !Arc::ptr_eq(poll_slot, &self.lost));
            if poll_slots.is_empty() {
                by_uid.remove(&*self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn one_more_than_the_share_ends_the_oldest() {
        let poll_slots = PollSlots::new(2);
        let [one, two, three] = [(); 3].map(|()| poll_slots.take("u"));
        let other = poll_slots.take("v");
        let lost = |poll_slot: &PollSlot| poll_slot.lost().now_or_never().is_some();
        assert_eq!([&one, &two, &three, &other].map(lost), [true, false, false, false]);
        drop((one, two));
        assert!(poll_slots.has("u"));
        drop(three);
        assert!(!poll_slots.has("u") && poll_slots.has("v"));
    }
}
