//! The held polls of each pod. When a pod has more than its share, the oldest is ended.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The slots for the held polls of each pod.
pub(crate) struct PollSlots {
    limit: usize,
    by_uid: Mutex<HashMap<String, VecDeque<Arc<Notify>>>>,
}

impl PollSlots {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, by_uid: Mutex::default() })
    }

    /// Takes a slot for a poll of the pod.
    pub(crate) fn take(self: &Arc<Self>, uid: &str) -> PollSlot {
        let lost = Arc::new(Notify::new());
        let mut by_uid = self.by_uid.lock();
        let slots = by_uid.entry(uid.to_owned()).or_default();
        slots.push_back(Arc::clone(&lost));
        if slots.len() > self.limit
            && let Some(oldest) = slots.pop_front()
        {
            oldest.notify_one();
        }
        drop(by_uid);
        PollSlot { poll_slots: Arc::clone(self), uid: uid.into(), lost }
    }

    /// Returns whether a poll of the pod is held here.
    pub(crate) fn has_poll(&self, uid: &str) -> bool {
        self.by_uid.lock().contains_key(uid)
    }
}

/// The slot of one poll, which is free again when this is dropped.
pub(crate) struct PollSlot {
    poll_slots: Arc<PollSlots>,
    uid: Box<str>,
    /// Is notified when another poll has taken the slot.
    pub(crate) lost: Arc<Notify>,
}

impl Drop for PollSlot {
    fn drop(&mut self) {
        let mut by_uid = self.poll_slots.by_uid.lock();
        if let Some(slots) = by_uid.get_mut(&*self.uid) {
            slots.retain(|slot| !Arc::ptr_eq(slot, &self.lost));
            if slots.is_empty() {
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
        let lost = |poll_slot: &PollSlot| poll_slot.lost.notified().now_or_never().is_some();
        assert_eq!([&one, &two, &three, &other].map(lost), [true, false, false, false]);
        drop((one, two));
        assert!(poll_slots.has_poll("u"));
        drop(three);
        assert!(!poll_slots.has_poll("u") && poll_slots.has_poll("v"));
    }
}
