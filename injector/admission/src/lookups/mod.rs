//! The look-ups that webhooks need beyond the request. Those at the API server are bounded in time and have no effect.

mod answer_cache;
mod api_server;
mod index;
mod pods;

use std::fmt;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::ConfigMap;
use nudge_api::{PartKind, VersionedConfig};
use nudge_cluster::call::CallError;

pub use self::api_server::{Accounts, KubeLookups, LOOKUP_TIMEOUT};
pub use self::index::IndexLookups;
pub use self::pods::{KubePodLookups, PodLookupState, PodLookups};
use crate::review::ReviewRequest;

/// The reason why a look-up failed. The request then gets status 500, and the failure policy decides.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// The API server refused, could not be reached, or did not answer in time.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The client has made Nudge ask too often. The request is denied.
    #[error(
        "{action} is refused: the reviews of {address} make Nudge ask the API server more than {per_second} times a second; send fewer"
    )]
    TooMany {
        /// The action that was not tried.
        action: String,
        /// The address of the client.
        address: IpAddr,
        /// The maximum rate.
        per_second: u32,
    },
}

/// The look-ups of the webhooks of versions and configs. Each answer must come well within the timeout that the API
/// server gives a webhook.
pub trait Lookups: Send + Sync + 'static {
    /// Reads the stored config.
    fn config(
        &self,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<Option<VersionedConfig>, LookupError>> + Send;

    /// Returns whether the namespace of a request is enabled.
    fn is_enabled(
        &self,
        request: &ReviewRequest,
        namespace: &str,
    ) -> impl Future<Output = Result<bool, LookupError>> + Send;

    /// Returns whether the namespace is terminating, or deleted already.
    fn is_terminating(&self, namespace: &str) -> impl Future<Output = Result<bool, LookupError>> + Send;

    /// Returns the index of this process.
    fn index(&self) -> &dyn IndexLookups;

    /// Reads a ConfigMap for a request.
    fn config_map(
        &self,
        request: &ReviewRequest,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<Option<ConfigMap>, LookupError>> + Send;

    /// Returns whether the user of the request has a right.
    fn may(
        &self,
        request: &ReviewRequest,
        namespace: &str,
        right: Right<'_>,
    ) -> impl Future<Output = Result<bool, LookupError>> + Send;

    /// Returns a workload whose template names this object, such as `Deployment web`, or a pod without an agent that
    /// does. Deletions by Nudge itself are not asked about again: it has looked.
    fn referrer(
        &self,
        _request: &ReviewRequest,
        _namespace: &str,
        _object: (PartKind, &str),
    ) -> impl Future<Output = Result<Option<String>, LookupError>> + Send {
        async { Ok(None) }
    }

    /// Returns whether a role of Nudge may handle such objects of the namespace. A warning depends on it, and no
    /// verdict.
    fn attends(
        &self,
        _request: &ReviewRequest,
        _namespace: &str,
        _kind: AttendedKind,
    ) -> impl Future<Output = Result<bool, LookupError>> + Send {
        async { Ok(true) }
    }
}

/// The kinds of objects that a role of Nudge handles only if its account has been given the right.
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
    /// Returns the verb, the group and the resource, as RBAC has them.
    fn rbac(self) -> (&'static str, &'static str, &'static str) {
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
    /// The right to update the object of this kind and name. An empty name stands for all of the kind.
    Update(PartKind, &'a str),
    /// The right to delete any object of this kind.
    Delete(PartKind),
    /// The right to create objects of this kind.
    Create(PartKind),
    /// The right to get the object of this kind and name.
    Get(PartKind, &'a str),
    /// The right to get all objects of this kind.
    GetAll(PartKind),
    /// The right to create tokens of the service account of this name.
    CreateToken(&'a str),
    /// The right to override the guards of the config of this name. An empty name stands for all configs.
    Override(&'a str),
    /// The right to approve versions of the config of this name.
    Approve(&'a str),
    /// The right to restore the config of this name from an export.
    Import(&'a str),
    /// The right to create configs in the namespace.
    CreateConfigs,
    /// The right to patch the config of this name.
    PatchConfig(&'a str),
}

impl Right<'_> {
    /// Returns the verb, the group, the resource (with its subresource) and the name, as RBAC has them.
    pub(super) fn rbac(&self) -> ((&'static str, &'static str, &'static str), Option<&str>) {
        let (verb, resource, name) = match self {
            Self::Update(kind, name) => ("update", plural(*kind), *name),
            Self::Delete(kind) => ("delete", plural(*kind), ""),
            Self::Create(kind) => ("create", plural(*kind), ""),
            Self::Get(kind, name) => ("get", plural(*kind), *name),
            Self::GetAll(kind) => ("get", plural(*kind), ""),
            Self::CreateToken(name) => ("create", "serviceaccounts/token", *name),
            Self::Override(name) => ("override", CONFIGS, *name),
            Self::Approve(name) => ("approve", CONFIGS, *name),
            Self::Import(name) => ("import", CONFIGS, *name),
            Self::CreateConfigs => ("create", CONFIGS, ""),
            Self::PatchConfig(name) => ("patch", CONFIGS, *name),
        };
        let group = if resource == CONFIGS { "nudge.dev" } else { "" };
        // Without a name the review covers all objects of the kind, which is stricter.
        ((verb, group, resource), (!name.is_empty()).then_some(name))
    }
}

impl fmt::Display for Right<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Update(kind, name) => write!(out, "update {kind} {name}"),
            Self::Delete(kind) => write!(out, "delete {kind}s"),
            Self::Create(kind) => write!(out, "create {kind}s"),
            Self::Get(kind, name) => write!(out, "get {kind} {name}"),
            Self::GetAll(kind) => write!(out, "get {kind}s"),
            Self::CreateToken(name) => write!(out, "create tokens of ServiceAccount {name}"),
            Self::Override(name) => write!(out, "override VersionedConfig {name}"),
            Self::Approve(name) => write!(out, "approve versions of VersionedConfig {name}"),
            Self::Import(name) => write!(out, "import VersionedConfig {name}"),
            Self::CreateConfigs => write!(out, "create VersionedConfigs"),
            Self::PatchConfig(name) => write!(out, "patch VersionedConfig {name}"),
        }
    }
}

/// Returns the resource of this kind.
fn plural(kind: PartKind) -> &'static str {
    match kind {
        PartKind::ConfigMap => "configmaps",
        PartKind::Secret => "secrets",
    }
}
