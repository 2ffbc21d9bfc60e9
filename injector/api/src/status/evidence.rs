//! The evidence for and against a version that pods are being moved to, in numbers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Reason;

/// Evidence for and against the target, in numbers. Only pods count that were healthy when the version was
/// assigned to them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EvidenceStatus {
    /// Number of pods with the target.
    pub assigned: u32,
    /// Number of pods with the target that were harmed.
    pub harmed: u32,
    /// Number of pods without the target.
    pub unassigned: u32,
    /// Number of pods without the target that were harmed in the same time.
    pub unassigned_harmed: u32,
    /// Number of pods with the target that are not waited for: they were not healthy before, or can't be reached.
    pub not_waited_for: u32,
    /// Number of pods with the target whose containers read no key that changed.
    #[serde(skip_serializing_if = "is_zero")]
    pub unchanged: u32,
    /// Harm of the pods with the target, such as PodNotReady. Absent if they were harmed in different ways.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Pod with the target that was harmed first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<HarmedPod>,
    /// Last results of the queries in spec.rollout.analysis.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub analysis: Vec<AnalysisStatus>,
}

/// Last results of one query, and what follows from all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnalysisStatus {
    /// Name of the analysis in spec.rollout.analysis.
    pub name: String,
    /// Verdict of the results: `Pending` (there are too few), `Clear`, `Inconclusive` (they show neither) or
    /// `Bad`.
    pub verdict: AnalysisVerdict,
    /// Result for the pods with the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Result for the pods without the target. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<String>,
    /// Time at which the results were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measure_time: Option<Time>,
}

/// The verdict of an analysis about the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AnalysisVerdict {
    /// There are too few answers yet.
    Pending,
    /// The answers say nothing against the target.
    Clear,
    /// The answers show neither.
    Inconclusive,
    /// The target is bad.
    Bad,
}

/// A pod that was harmed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HarmedPod {
    /// Name of the pod.
    pub name: String,
    /// Harm of the pod: PodNotReady, ContainerRestarted, or the reason that it reported.
    pub reason: Reason,
    /// Seconds from the notification of the pod to the harm. Negative if the pod was harmed before it reported the
    /// notification. Absent if another leader assigned the version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_seconds: Option<i64>,
}

/// Returns whether the number is zero.
pub(crate) fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}

/// Returns the number: a field's default.
pub(crate) fn number<const NUMBER: u32>() -> u32 {
    NUMBER
}
