//! Held polls per pod: a pod that asks for more than its share has its oldest answered.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// See the module's text.
pub(super) struct Seats {
    limit: usize,
    by_uid: Mutex<HashMap<String, VecDeque<Arc<Notify>>>>,
}

impl Seats {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, by_uid: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, VecDeque<Arc<Notify>>>> {
        self.by_uid.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place among the held polls of the pod.
    pub(super) fn take(self: &Arc<Self>, uid: &str) -> Seat {
        let lost = Arc::new(Notify::new());
        let mut by_uid = self.lock();
        let seats = by_uid.entry(uid.to_owned()).or_default();
        seats.push_back(Arc::clone(&lost));
        if seats.len() > self.limit
            && let Some(oldest) = seats.pop_front()
        {
            oldest.notify_one();
        }
        drop(by_uid);
        Seat { seats: Arc::clone(self), uid: uid.into(), lost }
    }

    /// Whether an agent of the pod is here.
    pub(super) fn has(&self, uid: &str) -> bool {
        self.lock().contains_key(uid)
    }
}

/// A place that is given back on drop.
pub(super) struct Seat {
    seats: Arc<Seats>,
    uid: Box<str>,
    lost: Arc<Notify>,
}

impl Seat {
    /// Another poll has taken the place.
    pub(super) async fn lost(&self) {
        self.lost.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut by_uid = self.seats.lock();
        if let Some(seats) = by_uid.get_mut(&*self.uid) {
            seats.retain(|seat| !Arc::ptr_eq(seat, &self.lost));
            if seats.is_empty() {
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
        let seats = Seats::new(2);
        let [one, two, three] = [(); 3].map(|()| seats.take("u"));
        let other = seats.take("v");
        let lost = |seat: &Seat| seat.lost().now_or_never().is_some();
        assert_eq!([&one, &two, &three, &other].map(lost), [true, false, false, false]);
        drop((one, two));
        assert!(seats.has("u"));
        drop(three);
        assert!(!seats.has("u") && seats.has("v"));
    }
}
