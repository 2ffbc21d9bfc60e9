//! A queue of the pods whose condition may have to be written, ordered by due time.

use std::time::Duration;

use nudge_core::hub_health::waiting_reports::Waits;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::write_order::{PendingWrite, WriteOrder};

/// The pending writes.
#[derive(Default)]
pub(crate) struct WriteQueue {
    order: Mutex<WriteOrder>,
    added: Notify,
    /// The time of the last successful write.
    last_write: Mutex<Option<Instant>>,
}

impl WriteQueue {
    /// Makes the pod due after `delay`, unless it is due earlier.
    pub(super) fn add(&self, write: PendingWrite, delay: Duration) {
        let due_time = Instant::now() + delay;
        self.retry(PendingWrite { failures: 0, since: Some(due_time), ..write }, due_time);
    }

    /// Makes the pod due at `due_time`, with the failures of earlier attempts.
    pub(super) fn retry(&self, write: PendingWrite, due_time: Instant) {
        self.order.lock().add(write, due_time);
        self.added.notify_one();
    }

    /// Records that a condition was written in this namespace.
    pub(super) fn record_write(&self, namespace: &str) {
        let now = Instant::now();
        *self.last_write.lock() = Some(now);
        self.order.lock().retry_refused(namespace, now);
    }

    /// Returns how long the oldest reports that may be written have waited.
    pub(crate) fn longest_waits(&self) -> Waits {
        let last_write = *self.last_write.lock();
        self.order.lock().longest_waits(last_write, Instant::now())
    }

    /// Waits for the next pod that is due.
    pub(super) async fn next(&self) -> PendingWrite {
        loop {
            let earliest = {
                let mut order = self.order.lock();
                if let Some(next) = order.next(Instant::now()) {
                    return next;
                }
                order.earliest()
            };
            match earliest {
                Some(due_time) => tokio::select! {
                    () = sleep_until(due_time) => {}
                    () = self.added.notified() => {}
                },
                None => self.added.notified().await,
            }
        }
    }
}
