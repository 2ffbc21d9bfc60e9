//! What guards must know beyond the request: answered live, within a time, without effect.

use std::time::Duration;

use k8s_openapi::api::authentication::v1::UserInfo;

use super::object::Content;
use crate::api::{PartKind, VersionedConfig};

/// How digests of parts are made, by their prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DigestAlgorithm {
    /// `sha256:`, for versions without a Secret.
    Sha256,
    /// `hmac-sha256:`, for versions with one.
    HmacSha256,
}

impl DigestAlgorithm {
    /// The algorithm of a stored digest; `None` where a later Nudge made it.
    pub fn of(digest: &str) -> Option<Self> {
        match digest.split_once(':')?.0 {
            "sha256" => Some(Self::Sha256),
            "hmac-sha256" => Some(Self::HmacSha256),
            _ => None,
        }
    }
}

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
    /// The digest could not be made.
    #[error("can't make the digest of a {kind}")]
    Digest {
        /// Of what.
        kind: PartKind,
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
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

    /// Whether the namespace is being deleted; one that is gone is.
    fn is_terminating(&self, namespace: &str) -> impl Future<Output = Result<bool, LookupError>> + Send;

    /// Names of the pods that subscribe to a config.
    fn subscribers(&self, namespace: &str, config: &str) -> Vec<String>;

    /// Whether the user may update the ConfigMap of that name.
    fn may_update_config_map(
        &self,
        user: &UserInfo,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<bool, LookupError>> + Send;

    /// The digest of a part.
    fn digest(
        &self,
        kind: PartKind,
        content: &Content,
        algorithm: DigestAlgorithm,
    ) -> impl Future<Output = Result<String, LookupError>> + Send;
}
