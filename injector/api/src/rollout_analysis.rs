//! `RolloutAnalysis`: what the controller asks of the role `analysis`, and its answers. Nobody else writes either.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whose numbers are asked for, while a config of this name is being moved.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "internal.nudge.dev",
    version = "v1alpha1",
    kind = "RolloutAnalysis",
    plural = "rolloutanalyses",
    namespaced,
    doc = "What Nudge measures while the config of this name is being moved. Nudge writes it, and refuses all others.",
    status = "RolloutAnalysisStatus",
    crates(kube_core = "::kube_core"),
    derive = "PartialEq",
    printcolumn = r#"{"name":"Target","type":"string","jsonPath":".spec.targetVersion","description":"The version that is judged."}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct RolloutAnalysisSpec {
    /// The version that is judged.
    #[schemars(length(max = 63))]
    pub target_version: String,
    /// The generation of the config whose queries are asked.
    pub generation: i64,
    /// Another text where the answers begin anew: after each step, and whenever pods had to prove the version again.
    #[schemars(length(max = 128))]
    pub round: String,
    /// Names of pods that run the version; of many a sample.
    #[schemars(length(max = 100), inner(length(max = 253)))]
    pub pods: Vec<String>,
    /// Names of pods that run the version before.
    #[serde(default)]
    #[schemars(length(max = 100), inner(length(max = 253)))]
    pub control: Vec<String>,
}

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutAnalysisStatus {
    /// The round that all answers are of.
    pub round: String,
    /// The answers of each query.
    #[schemars(length(max = 8))]
    pub queries: Vec<QueryAnswers>,
}

/// The last answers of a query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueryAnswers {
    /// The name of the analysis.
    pub name: String,
    /// The newest last.
    #[schemars(length(max = 20))]
    pub answers: Vec<Answer>,
}

impl QueryAnswers {
    /// How many answers are kept.
    pub const MOST: usize = 20;
}

/// One answer of a query, for both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// The how manieth of its round it is.
    pub number: u64,
    /// When it came.
    pub answer_time: Time,
    /// The number of the pods with the version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The number of the pods without it. Absent where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<String>,
    /// Why there is no number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
