//! `VersionApproval`: what one user has decided about one version.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a user has decided about a version. It does not change: to withdraw it, the user deletes it.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "nudge.dev",
    version = "v1alpha1",
    kind = "VersionApproval",
    namespaced,
    shortname = "vappr",
    category = "nudge",
    doc = "What one user has decided about one version of a config. kubectl nudge approve makes it.",
    status = "VersionApprovalStatus",
    crates(kube_core = "::kube_core"),
    derive = "PartialEq",
    printcolumn = r#"{"name":"Config","type":"string","jsonPath":".spec.configName","description":"The config."}"#,
    printcolumn = r#"{"name":"Version","type":"string","jsonPath":".spec.version","description":"The version."}"#,
    printcolumn = r#"{"name":"Decision","type":"string","jsonPath":".spec.decision","description":"What the user has decided."}"#,
    printcolumn = r#"{"name":"Approver","type":"string","jsonPath":".spec.approver","description":"The user."}"#,
    printcolumn = r#"{"name":"Counted","type":"string","jsonPath":".status.conditions[?(@.type=='Counted')].status","description":"The approval counts, or did when the version last went on."}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct VersionApprovalSpec {
    /// The config.
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub config_name: String,

    /// The version.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$"))]
    pub version: String,

    /// The digest of what the version is, as kubectl nudge approve reads it from the config. It counts for no other content.
    #[schemars(length(max = 64), regex(pattern = r"^sha256:[0-9a-f]{48}$"))]
    pub digest: String,

    /// What the user has decided.
    pub decision: ApprovalDecision,

    /// Why.
    #[schemars(length(min = 1, max = 256))]
    pub reason: String,

    /// The user, who is the one that creates the object. Where it is empty or missing, admission fills it in.
    #[schemars(length(min = 1, max = 512))]
    pub approver: String,
}

/// What became of the decision. It is for people: nothing is decided by it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VersionApprovalStatus {
    /// The generation of the object that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Counted: True where the approval counts, or did when the version last went on, and else False with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[schemars(length(max = 16))]
    pub conditions: Vec<Condition>,
}

/// What a user has decided about a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ApprovalDecision {
    /// It may go on.
    Approve,
    /// It may not, however many approve it.
    Deny,
}

impl ApprovalDecision {
    /// The decision as it stands in objects.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "Approve",
            Self::Deny => "Deny",
        }
    }
}
