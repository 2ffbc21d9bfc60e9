//! The versions in a status, and the objects that they are made of.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_protocol::volumes::ObjectKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Reason;
use crate::variant_names::impl_as_str;

/// A sealed version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionStatus {
    /// Name of the version.
    pub version: String,
    /// State of the version: `Available` is complete and not in use, `Target` is requested or moved to, `Current` is
    /// proven, `Failed` was tried and failed, and of `Broken` an object is gone or changed.
    pub state: VersionState,
    /// Digest of the content: the first 32 hex digits of the one that approvals name.
    #[serde(default)]
    pub digest: String,
    /// Objects of the version, by part number.
    #[schemars(length(max = 16))]
    pub parts: Vec<PartStatus>,
    /// Number of keys in the version.
    pub keys: u32,
    /// Size of all values together, in bytes.
    pub bytes: u64,
    /// Time at which the version was sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal_time: Option<Time>,
    /// Set if its creator may not update the ConfigMap of the config's name, or if Nudge could not check that. Such a
    /// version never becomes current by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consent: Option<Consent>,
}

/// A version that breaks a rule of spec.validation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InvalidVersion {
    /// Name of the version.
    pub version: String,
    /// Reason for programs, always Invalid.
    pub reason: Reason,
    /// Rules that the version breaks, with keys and places, and no values.
    pub message: String,
    /// Digest of the rules that the version was judged by, in 24 hex digits.
    pub rules: String,
    /// Digest of the content that was judged, in 24 hex digits.
    pub content: String,
}

impl InvalidVersion {
    /// The maximum number of invalid versions in the status.
    pub const MAX_INVALID: usize = 2;
}

/// Consent without which the version does not become current, because its creator may not update the published
/// ConfigMap, or Nudge could not check that. `Needed`: set spec.version to it. `NeededAnew`: set spec.version to
/// another version first, and then to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Consent {
    /// spec.version must be set to it.
    Needed,
    /// spec.version must be set to another version, or removed, and then to it: it named the version before the version
    /// was complete.
    NeededAnew,
}

/// The state of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VersionState {
    /// The version is complete and not in use.
    Available,
    /// The version is named by spec.version, or a rollout moves to it.
    Target,
    /// The version is proven.
    Current,
    /// The version was tried and failed.
    Failed,
    /// An object of the version is gone or is not what was sealed.
    Broken,
}

/// An object of a version, as it was sealed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PartStatus {
    /// Kind of the object: ConfigMap or Secret.
    pub kind: PartKind,
    /// Name of the object.
    pub name: String,
    /// UID of the object.
    pub uid: String,
    /// Digest of the content of a ConfigMap: `sha256:` and hex digits. Of a Secret, its seal: `seal:` and hex digits,
    /// which differ in every config, version and part, and can be compared with nothing.
    pub digest: String,
}

/// Kind of an object that a version is made of: ConfigMap or Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum PartKind {
    /// A ConfigMap.
    ConfigMap,
    /// A Secret.
    Secret,
}

impl From<PartKind> for ObjectKind {
    fn from(kind: PartKind) -> Self {
        match kind {
            PartKind::ConfigMap => Self::ConfigMap,
            PartKind::Secret => Self::Secret,
        }
    }
}

impl_as_str!(PartKind: ConfigMap Secret);

impl std::fmt::Display for PartKind {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.as_str())
    }
}
