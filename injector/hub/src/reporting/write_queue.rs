//! The pods whose condition may have to be written, each when it is due.

use std::time::Duration;

use nudge_core::hub_health::waiting_reports::Waits;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::write_order::{PendingWrite, WriteOrder};

/// Hands out pending writes.
#[derive(Default)]
pub(crate) struct WriteQueue {
    order: Mutex<WriteOrder>,
    added: Notify,
    /// When a condition was last written.
    written: Mutex<Option<Instant>>,
}

impl WriteQueue {
    /// Makes the pod due after `delay`, unless it is due earlier.
    pub(super) fn add(&self, write: PendingWrite, delay: Duration) {
        let at = Instant::now() + delay;
        self.put(PendingWrite { failures: 0, since: Some(at), ..write }, at);
    }

    /// Makes the pod due at `at`, with what earlier tries have shown.
    pub(super) fn put(&self, write: PendingWrite, at: Instant) {
        self.order.lock().add(write, at);
        self.added.notify_one();
    }

    /// Takes in that a condition was written in this namespace.
    pub(super) fn written(&self, namespace: &str) {
        let now = Instant::now();
        *self.written.lock() = Some(now);
        self.order.lock().accepted(namespace, now);
    }

    /// Returns for how long the oldest reports have waited that may be written.
    pub(crate) fn oldest(&self) -> Waits {
        let written = *self.written.lock();
        self.order.lock().oldest(written, Instant::now())
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
                Some(at) => tokio::select! {
                    () = sleep_until(at) => {}
                    () = self.added.notified() => {}
                },
                None => self.added.notified().await,
            }
        }
    }
}
