//! Tells clients whom to trust: the API server in the webhook configurations, agents in a ConfigMap of every namespace. Run by the
//! leader only.

mod namespaces;
mod webhooks;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

pub use namespaces::{HUB_CA, HUB_CA_KEY, publish_to_namespaces};
pub use webhooks::publish_to_webhooks;

use nudge_cluster::jitter::jittered;

/// How often what is published is looked at, and how failures are repeated.
#[derive(Clone, Copy, Debug)]
pub struct PublishTimes {
    /// Between two looks: others may have written over it.
    pub look: Duration,
    /// After a namespace's first refusal; doubled with each.
    pub first_pause: Duration,
    /// Longest pause for a namespace that refuses.
    pub longest_pause: Duration,
}

impl Default for PublishTimes {
    fn default() -> Self {
        Self {
            look: Duration::from_secs(45),
            first_pause: Duration::from_secs(15),
            longest_pause: Duration::from_mins(10),
        }
    }
}

/// How long the API server may take for one answer.
const DEADLINE: Duration = Duration::from_secs(10);

/// Why something could not be published.
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

/// Waits for another bundle or the next look; `false` when there will be no other bundle.
async fn next_look(bundle: &mut watch::Receiver<Arc<str>>, look: Duration) -> bool {
    tokio::select! {
        changed = bundle.changed() => changed.is_ok(),
        () = sleep(jittered(look)) => true,
    }
}
