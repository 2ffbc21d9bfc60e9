//! Look-ups that webhooks for versions and configs need beyond the request: live, bounded in time, without effect.

use std::time::Duration;

use k8s_openapi::api::authentication::v1::UserInfo;
use nudge_api::VersionedConfig;
use tokio::time::timeout;

/// Why a look-up failed. The request then gets status 500, and the failure policy decides.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// The API server refused or could not be reached.
    #[error("can't {what}")]
    Api {
        /// What was tried, with the object's name.
        what: String,
        /// The cause.
        source: Box<kube::Error>,
    },
    /// The API server did not answer in time.
    #[error("can't {what}: no answer within {within:?}")]
    TooSlow {
        /// What was tried.
        what: String,
        /// The time limit.
        within: Duration,
    },
}

impl LookupError {
    /// Waits for `answer`, at most for `limit`. `what` is what is tried, such as `read ConfigMap team/shop`.
    pub(super) async fn within<T>(
        limit: Duration,
        what: impl FnOnce() -> String,
        answer: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Self> {
        match timeout(limit, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(Self::Api { what: what(), source: Box::new(error) }),
            Err(_) => Err(Self::TooSlow { what: what(), within: limit }),
        }
    }
}

/// The look-ups. Each answer must come well within the timeout that the API server gives a webhook.
pub trait Lookups: Send + Sync + 'static {
    /// The stored config.
    fn config(
        &self,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<Option<VersionedConfig>, LookupError>> + Send;

    /// Whether the namespace is enabled.
    fn is_enabled(&self, namespace: &str) -> impl Future<Output = Result<bool, LookupError>> + Send;

    /// Whether the namespace is terminating, or deleted already.
    fn is_terminating(&self, namespace: &str) -> impl Future<Output = Result<bool, LookupError>> + Send;

    /// How many pods subscribe to a config.
    fn subscribers(&self, namespace: &str, config: &str) -> usize;

    /// Whether the user may update the ConfigMap of that name.
    fn may_update_config_map(
        &self,
        user: &UserInfo,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<bool, LookupError>> + Send;
}
