//! Keeps the last good contents for the agent's next start. Contents that can't be stored are stored later: with an
//! older state in the file, the application would go back at that start.

use nudge_protocol::hub::PollHead;
use tokio::sync::watch;

use super::next_attempt::Retry;
use crate::content::Value;
use crate::source::hub::LastGood;

/// The keeper of the file with the last good contents.
pub(super) struct LastGoodKeeper {
    file: LastGood,
    /// The `ETag` of the dictionary that would be served after a restart.
    kept_etag: watch::Sender<Option<String>>,
    retry: Retry,
}

impl LastGoodKeeper {
    pub(super) fn new(file: LastGood) -> Self {
        Self { file, kept_etag: watch::Sender::default(), retry: Retry::default() }
    }

    pub(super) fn file(&self) -> &LastGood {
        &self.file
    }

    /// Returns the `ETag` of the dictionary that would be served after a restart.
    pub(super) fn watch_kept_etag(&self) -> watch::Receiver<Option<String>> {
        self.kept_etag.subscribe()
    }

    /// Sets the `ETag` of the dictionary that would be served after a restart.
    pub(super) fn set_kept_etag(&self, etag: Option<String>) {
        self.kept_etag.send_replace(etag);
    }

    /// Waits until it is time to store again; for ever if everything is stored.
    pub(super) async fn wait_until_due(&self) {
        self.retry.wait_until_due().await;
    }

    /// Stores the contents whose dictionary has this `ETag`.
    pub(super) async fn store(&mut self, (head, blocks): (PollHead, Vec<Value>), etag: Option<String>) {
        let file = self.file.clone();
        let failures = self.retry.failures;
        match tokio::task::spawn_blocking(move || file.store(&head, &blocks)).await {
            Ok(Ok(())) => {
                self.retry = Retry::default();
                return self.set_kept_etag(etag);
            }
            Ok(Err(error)) if failures == 0 => {
                tracing::warn!(%error, "last good contents not stored, retrying; a restart of this agent loses them");
            }
            Ok(Err(error)) => tracing::debug!(%error, failures, "last good contents not stored"),
            Err(error) => tracing::error!(%error, "last good contents not stored, which is a bug"),
        }
        self.retry.plan();
    }
}
