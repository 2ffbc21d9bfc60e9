//! A pod of the index.

use std::sync::Arc;
use std::time::Instant;

use nudge_core::pods::PodState;
use tokio::sync::watch;

/// A pod, and the channel of the changes that concern it.
#[derive(Clone, Debug)]
pub struct PodEntry {
    /// What the watch last showed of the pod.
    pub state: Arc<PodState>,
    /// The time when containers last became unready or restarted.
    pub(super) fell_at: Option<Instant>,
    pub(super) wake: Arc<watch::Sender<()>>,
}

impl PodEntry {
    /// Returns a receiver of changes of the pod, of each config that it uses, and of the end of its service account.
    /// Subscribe before you read.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.wake.subscribe()
    }

    pub(super) fn wake(&self) {
        self.wake.send_replace(());
    }
}
