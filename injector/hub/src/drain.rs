//! Sends agents to other replicas when this one ends, one after the other.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

/// The drain of a replica: whether it has begun, and how long it takes.
pub(crate) struct Drain {
    begun: watch::Sender<bool>,
    /// Over which time agents are sent away.
    over: Duration,
}

impl Drain {
    pub(crate) fn new(over: Duration) -> Self {
        Self { begun: watch::Sender::new(false), over }
    }

    pub(crate) fn begin(&self) {
        self.begun.send_replace(true);
    }

    pub(crate) fn has_begun(&self) -> bool {
        *self.begun.borrow()
    }

    /// Waits until one agent is to be sent away.
    pub(crate) async fn sent_away(&self) {
        // The sender lives as long as this.
        let _ = self.begun.subscribe().wait_for(|begun| *begun).await;
        sleep(self.over.mul_f64(rand::random_range(0.0..1.0))).await;
    }
}
