//! `RolloutAnalysis`: the questions of the controller to the role `analysis`, and its answers. Nobody else writes
//! either.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Question that Nudge asks while the config of this name is being moved, and once before.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "internal.nudge.dev",
    version = "v1alpha1",
    kind = "RolloutAnalysis",
    plural = "rolloutanalyses",
    namespaced,
    doc = "RolloutAnalysis holds what Nudge measures while the config of this name is being moved, and once before. Only Nudge may write it.",
    status = "RolloutAnalysisStatus",
    crates(kube_core = "::kube_core"),
    derive = "PartialEq",
    printcolumn = r#"{"name":"Target","type":"string","jsonPath":".spec.targetVersion","description":"The version that is judged."}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct RolloutAnalysisSpec {
    /// Version that is judged. Absent where only the queries are tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub target_version: Option<String>,
    /// The metadata.generation of the config whose queries are asked.
    pub generation: i64,
    /// Text that changes when the answers begin again: after each step, and whenever pods must prove the version again.
    #[schemars(length(max = 128))]
    pub round: String,
    /// Names of pods that run the version, at most 100: of more, a sample.
    #[schemars(length(max = 100), inner(length(max = 253)))]
    pub pods: Vec<String>,
    /// Names of pods that run the version before, at most 100.
    #[serde(default)]
    #[schemars(length(max = 100), inner(length(max = 253)))]
    pub control: Vec<String>,
}

/// Answers of the queries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutAnalysisStatus {
    /// Round that all answers belong to.
    pub round: String,
    /// Answers by query, at most 8 queries.
    #[schemars(length(max = 8))]
    pub queries: Vec<QueryAnswers>,
}

/// Last answers of one query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueryAnswers {
    /// Name of the analysis in spec.rollout.analysis.
    pub name: String,
    /// Last answers of the query, at most 20, newest last.
    #[schemars(length(max = 20))]
    pub answers: Vec<Answer>,
}

impl QueryAnswers {
    /// The maximum number of answers that are kept.
    pub const MAX_ANSWERS: usize = 20;
}

/// An answer of a query, for both groups of pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// Number of the answer within its round.
    pub number: u64,
    /// Time at which the answer came.
    pub answer_time: Time,
    /// Result for the pods with the version. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Result for the pods without the version. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<String>,
    /// Reason why there is no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
