//! Publishes the CA that clients trust: to the API server in the webhook configurations, to agents in a ConfigMap of every enabled
//! namespace. Only the leader does.

mod namespaces;
mod webhooks;

use std::sync::Arc;
use std::time::Duration;

use nudge_cluster::jitter::jittered;
use nudge_protocol::backoff::Backoff;
use tokio::sync::watch;
use tokio::time::sleep;

pub use namespaces::{HUB_CA, HUB_CA_KEY, publish_to_namespaces};
pub use webhooks::publish_to_webhooks;

/// How often publications are checked, and how failures are retried.
#[derive(Clone, Copy, Debug)]
pub struct PublishTimes {
    /// Between two checks: others may have overwritten the CA.
    pub check: Duration,
    /// The pauses after failures in one namespace.
    pub retry: Backoff,
}

impl Default for PublishTimes {
    fn default() -> Self {
        Self {
            check: Duration::from_secs(45),
            retry: Backoff { first: Duration::from_secs(15), longest: Duration::from_mins(10) },
        }
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
    /// It did not answer.
    #[error("the API server gave no answer within {DEADLINE:?}")]
    TooSlow,
}

async fn in_time<T>(answer: impl Future<Output = kube::Result<T>>) -> Result<T, PublishError> {
    Ok(tokio::time::timeout(DEADLINE, answer).await.map_err(|_| PublishError::TooSlow)??)
}

/// Waits for another bundle or the next check; `false` when there will be no other bundle.
async fn next_check(bundle: &mut watch::Receiver<Arc<str>>, check: Duration) -> bool {
    tokio::select! {
        changed = bundle.changed() => changed.is_ok(),
        () = sleep(jittered(check)) => true,
    }
}
