//! Waiting at the start for what others make: logged whenever the reason changes, and never given up.

use std::time::Duration;

use nudge_cluster::jitter::jittered;
use tokio::time::sleep;

/// First and longest pause.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(15)];

/// A wait that goes on until what is waited for is there.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pause: Option<Duration>,
    logged: Option<String>,
}

impl Waiting {
    /// Says what is waited for and why, and waits for a moment.
    pub(super) async fn pause(&mut self, what: &'static str, error: &str) {
        if self.logged.as_deref() != Some(error) {
            tracing::warn!(error, "{what}");
            self.logged = Some(error.to_owned());
        }
        let [first, longest] = PAUSES;
        let pause = self.pause.unwrap_or(first);
        self.pause = Some((pause * 2).min(longest));
        sleep(jittered(pause)).await;
    }
}
