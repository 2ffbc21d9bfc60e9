//! A pod in the index.

use std::sync::Arc;
use std::time::Instant;

use nudge_core::pods::PodState;
use tokio::sync::watch;

/// A pod, and who waits for a change that concerns it.
#[derive(Clone, Debug)]
pub struct PodEntry {
    /// What is known of it.
    pub state: Arc<PodState>,
    /// When its containers last became unready or restarted.
    pub(super) fell: Option<Instant>,
    pub(super) wake: Arc<watch::Sender<()>>,
}

impl PodEntry {
    /// Changes with the pod, with each config that it uses, and when its service account is gone. Subscribe first, then look.
    pub fn woken(&self) -> watch::Receiver<()> {
        self.wake.subscribe()
    }

    pub(super) fn wake(&self) {
        self.wake.send_replace(());
    }
}
