//! Publishes the CA that the API server trusts, in the webhook configurations. Agents get the CA by injection.

mod webhooks;

use std::sync::Arc;
use std::time::Duration;

use nudge_cluster::jitter::with_jitter;
use tokio::sync::watch;
use tokio::time::sleep;

pub use webhooks::publish_to_webhooks;

/// The interval between checks for foreign changes of the CA.
pub const PUBLISH_CHECK_INTERVAL: Duration = Duration::from_secs(45);

/// The maximum duration of one call of the API server.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The reason why the CA could not be published.
#[derive(Debug, thiserror::Error)]
enum PublishError {
    /// The API server refused the call or could not be reached.
    #[error("the API server refused")]
    Api(#[from] kube::Error),
    /// The API server did not answer in time.
    #[error("the API server did not answer within {CALL_TIMEOUT:?}")]
    TooSlow,
}

async fn with_timeout<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, PublishError> {
    Ok(tokio::time::timeout(CALL_TIMEOUT, call).await.map_err(|_| PublishError::TooSlow)??)
}

/// Waits for another bundle or the next check. Returns `false` when there will be no other bundle.
async fn wait_for_check(bundle: &mut watch::Receiver<Arc<str>>, delay: Duration) -> bool {
    tokio::select! {
        result = bundle.changed() => result.is_ok(),
        () = sleep(with_jitter(delay)) => true,
    }
}
