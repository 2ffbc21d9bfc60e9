//! `VersionApproval`: the decision of one user about one version.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::variant_names::impl_as_str;

/// Decision of one user about one version. It can't be changed: to withdraw the decision, delete the object.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "nudge.dev",
    version = "v1alpha1",
    kind = "VersionApproval",
    namespaced,
    shortname = "vappr",
    category = "nudge",
    doc = "VersionApproval holds what one user has decided about one version of a config. Create it with kubectl nudge approve or deny.",
    status = "VersionApprovalStatus",
    crates(kube_core = "::kube_core"),
    derive = "PartialEq",
    printcolumn = r#"{"name":"Config","type":"string","jsonPath":".spec.configName","description":"Name of the config."}"#,
    printcolumn = r#"{"name":"Version","type":"string","jsonPath":".spec.version","description":"Name of the version."}"#,
    printcolumn = r#"{"name":"Decision","type":"string","jsonPath":".spec.decision","description":"What the user has decided."}"#,
    printcolumn = r#"{"name":"Approver","type":"string","jsonPath":".spec.approver","description":"Name of the user."}"#,
    printcolumn = r#"{"name":"Counted","type":"string","jsonPath":".status.conditions[?(@.type=='Counted')].status","description":"The approval counts, or did when the version last continued."}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct VersionApprovalSpec {
    /// Name of the VersionedConfig in this namespace.
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub config_name: String,

    /// Name of the version of that config.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$"))]
    pub version: String,

    /// Digest of the content that the user has read: `sha256:` and 48 hex digits. The decision counts for no other
    /// content.
    #[schemars(length(max = 64), regex(pattern = r"^sha256:[0-9a-f]{48}$"))]
    pub digest: String,

    /// Decision of the user: `Approve` lets the version continue, `Deny` holds it however many users approve it.
    pub decision: ApprovalDecision,

    /// Reason of the decision, in 1 to 256 characters.
    #[schemars(length(min = 1, max = 256))]
    pub reason: String,

    /// Name of the user, who must be the one that creates the object. Admission fills it in where it is empty or
    /// missing.
    #[schemars(length(min = 1, max = 512))]
    pub approver: String,
}

/// State of the decision: whether it counts. The status is for people: Nudge decides nothing by it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VersionApprovalStatus {
    /// The metadata.generation that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions of the approval: Counted is True if it counts, or did when the version last continued, and else False
    /// with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// The decision of a user about a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ApprovalDecision {
    /// The version may continue.
    Approve,
    /// The version may not continue, however many approve it.
    Deny,
}

impl_as_str!(ApprovalDecision: Approve Deny);
