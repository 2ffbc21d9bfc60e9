//! Publishes the CA that the API server trusts, in the webhook configurations. Agents get the CA by injection.

mod webhooks;

use std::sync::Arc;
use std::time::Duration;

use nudge_cluster::jitter::with_jitter;
use tokio::sync::watch;
use tokio::time::sleep;

pub use webhooks::publish_to_webhooks;

/// How often publications are checked.
#[derive(Clone, Copy, Debug)]
pub struct PublishTimes {
    /// Between two checks: others may have overwritten the CA.
    pub check: Duration,
}

impl Default for PublishTimes {
    fn default() -> Self {
        Self { check: Duration::from_secs(45) }
    }
}

/// How long the API server may take for one call.
const DEADLINE: Duration = Duration::from_secs(10);

/// Why the CA could not be published.
#[derive(Debug, thiserror::Error)]
enum PublishError {
    /// The API server refused or could not be reached.
    #[error("the API server refused")]
    Api(#[from] kube::Error),
    /// The API server did not answer in time.
    #[error("the API server did not answer within {DEADLINE:?}")]
    TooSlow,
}

async fn in_time<T>(answer: impl Future<Output = kube::Result<T>>) -> Result<T, PublishError> {
    Ok(tokio::time::timeout(DEADLINE, answer).await.map_err(|_| PublishError::TooSlow)??)
}

/// Waits for another bundle or the next check; `false` when there will be no other bundle.
async fn next_check(bundle: &mut watch::Receiver<Arc<str>>, check: Duration) -> bool {
    tokio::select! {
        changed = bundle.changed() => changed.is_ok(),
        () = sleep(with_jitter(check)) => true,
    }
}
