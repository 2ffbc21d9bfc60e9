//! Sends agents to other replicas, one after the other, when this replica shuts down.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

/// The drain of a replica, which sends agents away over a period.
pub(crate) struct Drain {
    has_begun: watch::Sender<bool>,
    period: Duration,
}

impl Drain {
    pub(crate) fn new(period: Duration) -> Self {
        Self { has_begun: watch::Sender::new(false), period }
    }

    pub(crate) fn begin(&self) {
        self.has_begun.send_replace(true);
    }

    pub(crate) fn has_begun(&self) -> bool {
        *self.has_begun.borrow()
    }

    /// Waits until one agent is to be sent away.
    pub(crate) async fn wait_for_turn(&self) {
        // The sender lives as long as this.
        let _ = self.has_begun.subscribe().wait_for(|has_begun| *has_begun).await;
        sleep(self.period.mul_f64(rand::random_range(0.0..1.0))).await;
    }
}
