//! Keeps the last good contents for the agent's next start. What can't be stored is tried again: with an older state in the file the
//! application would go back at that start.

use std::future::pending;
use std::time::Duration;

use nudge_protocol::backoff::Backoff;
use nudge_protocol::hub::PollHead;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::content::Value;
use crate::source::hub::LastGood;

/// Waits between attempts.
const STORE_BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1) };

/// The file, and what it holds.
pub(super) struct Keeper {
    file: LastGood,
    /// `ETag` of the dictionary that would be served after a restart.
    kept: watch::Sender<Option<String>>,
    /// Attempts that have failed, and when the next one is due.
    retry: Option<(u32, Instant)>,
}

impl Keeper {
    pub(super) fn new(file: LastGood) -> Self {
        Self { file, kept: watch::Sender::default(), retry: None }
    }

    /// The file.
    pub(super) fn file(&self) -> &LastGood {
        &self.file
    }

    /// `ETag` of the dictionary that would be served after a restart.
    pub(super) fn watch_kept_etag(&self) -> watch::Receiver<Option<String>> {
        self.kept.subscribe()
    }

    /// The dictionary of this `ETag` would be served after a restart.
    pub(super) fn mark(&self, etag: Option<String>) {
        self.kept.send_replace(etag);
    }

    /// Waits until it is time to store again; for ever where all is stored.
    pub(super) async fn wait_until_due(&self) {
        match self.retry {
            Some((_, due)) => sleep_until(due).await,
            None => pending().await,
        }
    }

    /// Stores the contents whose dictionary has this `ETag`.
    pub(super) async fn store(&mut self, (head, blocks): (PollHead, Vec<Value>), etag: Option<String>) {
        let file = self.file.clone();
        let failures = self.retry.take().map_or(0, |(failures, _)| failures);
        match tokio::task::spawn_blocking(move || file.store(&head, &blocks)).await {
            Ok(Ok(())) => return self.mark(etag),
            Ok(Err(error)) if failures == 0 => {
                tracing::warn!(%error, "last good contents not stored, retrying; a restart of this agent loses them");
            }
            Ok(Err(error)) => tracing::debug!(%error, failures, "last good contents not stored"),
            Err(error) => tracing::error!(%error, "last good contents not stored, which is a bug"),
        }
        let failures = failures.saturating_add(1);
        self.retry = Some((failures, Instant::now() + STORE_BACKOFF.wait(failures)));
    }
}
