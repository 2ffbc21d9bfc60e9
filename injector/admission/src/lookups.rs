//! What guards must know beyond the request: answered live, within a time, without effect.

use std::time::Duration;

use k8s_openapi::api::authentication::v1::UserInfo;
use nudge_api::VersionedConfig;

/// Why a question has no answer; the request then gets status 500 and the failure policy decides.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// The API server refused or could not be reached.
    #[error("can't {what}")]
    Api {
        /// What was tried, with the name of the object.
        what: String,
        /// The refusal.
        source: Box<kube::Error>,
    },
    /// The API server did not answer in time.
    #[error("can't {what}: no answer within {within:?}")]
    TooSlow {
        /// What was tried.
        what: String,
        /// How long it was waited for.
        within: Duration,
    },
}

/// What guards ask. Every answer must come well within the time that the API server gives a webhook.
pub trait Lookups: Send + Sync + 'static {
    /// The config as it is now.
    fn config(
        &self,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<Option<VersionedConfig>, LookupError>> + Send;

    /// Whether the namespace is enabled.
    fn is_enabled(&self, namespace: &str) -> impl Future<Output = Result<bool, LookupError>> + Send;

    /// Whether the namespace is being deleted; one that is gone is.
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
