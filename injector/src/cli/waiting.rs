//! Waits at the start for objects that others make. A wait never ends without its object, and is logged whenever its
//! reason changes.

use std::time::Duration;

use nudge_cluster::jitter::with_jitter;
use nudge_protocol::backoff::Backoff;
use tokio::time::sleep;

const WAIT_BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(15) };

/// A wait for an object.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    failures: u32,
    logged: Option<String>,
}

impl Waiting {
    /// Logs the awaited object and the reason for the wait, and waits for a moment.
    pub(super) async fn pause(&mut self, what: &'static str, error: &str) {
        if self.logged.as_deref() != Some(error) {
            tracing::warn!(error, "{what}");
            self.logged = Some(error.to_owned());
        }
        self.failures = self.failures.saturating_add(1);
        sleep(with_jitter(WAIT_BACKOFF.wait(self.failures))).await;
    }
}
