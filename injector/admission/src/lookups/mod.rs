//! Look-ups that webhooks for versions and configs need beyond the request: live, bounded in time, without effect.

mod answer_cache;
mod api_server;
mod pods;

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use nudge_api::{PartKind, VersionApproval, VersionedConfig};
use nudge_core::governance::Policies;
use tokio::time::timeout;

pub use self::api_server::{
    Accounts, KnownApprovals, KnownConfigs, KnownNamespaces, KnownPartKinds, KnownPolicies, KubeLookups,
    LOOKUP_TIMEOUT, Subscribers,
};
pub use self::pods::{KubePodLookups, PodLookupState, PodLookups};
use crate::review::Request;

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
    /// The client has made Nudge ask too often. The request is denied.
    #[error(
        "can't {what}: the reviews of {address} make Nudge ask the API server more than {per_second} times a second; send fewer"
    )]
    TooMany {
        /// What was to be tried.
        what: String,
        /// The client.
        address: IpAddr,
        /// How often it may.
        per_second: u32,
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

    /// Whether the namespace of a request is enabled.
    fn is_enabled(&self, request: &Request, namespace: &str) -> impl Future<Output = Result<bool, LookupError>> + Send;

    /// Whether the namespace is terminating, or deleted already.
    fn is_terminating(&self, namespace: &str) -> impl Future<Output = Result<bool, LookupError>> + Send;

    /// How many pods use a config; `None` where not all pods of the namespace are known.
    fn subscribers(&self, namespace: &str, config: &str) -> Option<usize>;

    /// Returns whether versions of the namespace may have Secrets as parts.
    fn may_have_secrets(&self, namespace: &str) -> bool;

    /// The config as the index has it, for what is no more than a courtesy.
    fn known_config(&self, namespace: &str, name: &str) -> Option<Arc<VersionedConfig>>;

    /// The policies of the namespace as the index has them, for what is no more than a courtesy.
    fn policies(&self, namespace: &str) -> Policies;

    /// What users have decided about versions of the config, as the index has it, for the bound of that.
    fn approvals(&self, namespace: &str, config: &str) -> Vec<Arc<VersionApproval>>;

    /// Returns the kinds of the objects that are labelled as parts of the config, as the index has them: they are deleted with it.
    fn part_kinds(&self, namespace: &str, config: &str) -> BTreeSet<PartKind>;

    /// A ConfigMap that the request makes Nudge read.
    fn config_map(
        &self,
        request: &Request,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<Option<ConfigMap>, LookupError>> + Send;

    /// Whether the user of the request has a right.
    fn may(
        &self,
        request: &Request,
        namespace: &str,
        right: Right<'_>,
    ) -> impl Future<Output = Result<bool, LookupError>> + Send;

    /// Whether somebody in Nudge may look at such objects of the namespace, for what is no more than a courtesy.
    fn attends(
        &self,
        _request: &Request,
        _namespace: &str,
        _what: AttendedKind,
    ) -> impl Future<Output = Result<bool, LookupError>> + Send {
        async { Ok(true) }
    }
}

/// What an account of Nudge looks at where somebody has given it the right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttendedKind {
    /// ConfigSources, by the role `sources`.
    Sources,
    /// Secrets of versions, by the role `control`.
    Secrets,
    /// Queries of configs, by the role `analysis`.
    Analyses,
}

impl AttendedKind {
    /// The verb, the group and the resource, as RBAC has them.
    pub(super) fn parts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Sources => ("list", "nudge.dev", "configsources"),
            Self::Secrets => ("list", "", "secrets"),
            Self::Analyses => ("get", "nudge.dev", CONFIGS),
        }
    }
}

/// The resource of configs.
const CONFIGS: &str = "versionedconfigs";

/// A right that a user may have in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right<'a> {
    /// To update the ConfigMap of this name. An empty name stands for all ConfigMaps.
    UpdateConfigMap(&'a str),
    /// To update the Secret of this name. An empty name stands for all Secrets.
    UpdateSecret(&'a str),
    /// To delete any object of this kind.
    Delete(PartKind),
    /// To create objects of this kind.
    Create(PartKind),
    /// To get the object of this kind and name. An empty name stands for all of the kind.
    Get(PartKind, &'a str),
    /// To have tokens of the service account of this name.
    CreateToken(&'a str),
    /// To override the guards of the config of this name. An empty name stands for all configs.
    Override(&'a str),
    /// To approve versions of the config of this name.
    Approve(&'a str),
    /// To restore the config of this name from an export.
    Import(&'a str),
    /// To create configs.
    CreateConfigs,
    /// To patch the config of this name.
    PatchConfig(&'a str),
}

impl<'a> Right<'a> {
    /// To update the object of this kind and name.
    pub(super) fn update(kind: PartKind, name: &'a str) -> Self {
        match kind {
            PartKind::ConfigMap => Self::UpdateConfigMap(name),
            PartKind::Secret => Self::UpdateSecret(name),
        }
    }

    /// The verb, the group, the resource (with its subresource) and the name, as RBAC has them.
    pub(super) fn parts(&self) -> (&'static str, &'static str, &'static str, Option<&str>) {
        let (verb, resource, name) = match self {
            Self::UpdateConfigMap(name) => ("update", "configmaps", *name),
            Self::UpdateSecret(name) => ("update", "secrets", *name),
            Self::Delete(kind) => ("delete", plural(*kind), ""),
            Self::Create(kind) => ("create", plural(*kind), ""),
            Self::Get(kind, name) => ("get", plural(*kind), *name),
            Self::CreateToken(name) => ("create", "serviceaccounts/token", *name),
            Self::Override(name) => ("override", CONFIGS, *name),
            Self::Approve(name) => ("approve", CONFIGS, *name),
            Self::Import(name) => ("import", CONFIGS, *name),
            Self::CreateConfigs => ("create", CONFIGS, ""),
            Self::PatchConfig(name) => ("patch", CONFIGS, *name),
        };
        let group = if resource == CONFIGS { "nudge.dev" } else { "" };
        // Without a name the review is about all objects of the kind, which is stricter.
        (verb, group, resource, (!name.is_empty()).then_some(name))
    }
}

impl fmt::Display for Right<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UpdateConfigMap(name) => write!(out, "update ConfigMap {name}"),
            Self::UpdateSecret(name) => write!(out, "update Secret {name}"),
            Self::Delete(kind) => write!(out, "delete {kind}s"),
            Self::Create(kind) => write!(out, "create {kind}s"),
            Self::Get(kind, "") => write!(out, "get {kind}s"),
            Self::Get(kind, name) => write!(out, "get {kind} {name}"),
            Self::CreateToken(name) => write!(out, "create tokens of ServiceAccount {name}"),
            Self::Override(name) => write!(out, "override VersionedConfig {name}"),
            Self::Approve(name) => write!(out, "approve versions of VersionedConfig {name}"),
            Self::Import(name) => write!(out, "import VersionedConfig {name}"),
            Self::CreateConfigs => write!(out, "create VersionedConfigs"),
            Self::PatchConfig(name) => write!(out, "patch VersionedConfig {name}"),
        }
    }
}

/// The resource of this kind.
fn plural(kind: PartKind) -> &'static str {
    match kind {
        PartKind::ConfigMap => "configmaps",
        PartKind::Secret => "secrets",
    }
}
