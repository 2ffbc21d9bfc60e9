//! The plan of repeated attempts.

use std::future::pending;
use std::time::Duration;

use nudge_protocol::backoff::Backoff;
use tokio::time::{Instant, sleep_until};

/// The waits between attempts.
const ATTEMPT_BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1) };

/// The next attempt at something that has failed.
#[derive(Debug, Default)]
pub(super) struct Retry {
    /// The number of failures in a row.
    pub(super) failures: u32,
    /// The time of the next attempt; `None` if none is planned.
    pub(super) due: Option<Instant>,
}

impl Retry {
    /// Plans an attempt after another failure. Returns the number of failures in a row.
    pub(super) fn plan(&mut self) -> u32 {
        self.failures = self.failures.saturating_add(1);
        self.due = Some(Instant::now() + ATTEMPT_BACKOFF.wait(self.failures));
        self.failures
    }

    /// Waits until the next attempt is due; for ever if none is planned.
    pub(super) async fn wait_until_due(&self) {
        match self.due {
            Some(due) => sleep_until(due).await,
            None => pending().await,
        }
    }
}
