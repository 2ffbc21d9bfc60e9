//! What only Nudge reads of a status: the assignment of pods, and what it remembers.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::version_status::PartKind;
use crate::StepSelector;

/// State that only Nudge reads: the assignment of pods, and what it remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct InternalStatus {
    /// Identity of the config: 32 hex digits that Nudge sets once. The order of pods and the keys that seal Secrets
    /// follow from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-9a-f]{32}$"))]
    pub identity: Option<String>,
    /// Number that grows whenever the assignment of any pod changes.
    pub revision: u64,
    /// Pods whose number, from 0 to 4294967295, is below this run the target; 4294967296 stands for all pods. Workloads
    /// that are listed have a threshold of their own instead.
    #[serde(skip_serializing_if = "crate::status::is_zero")]
    #[schemars(range(min = 0, max = 4_294_967_296_u64))]
    pub threshold: u64,
    /// Thresholds of workloads with 20 pods or more: of the largest 100, and of those that were among them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 200))]
    pub workloads: Vec<WorkloadThreshold>,
    /// Thresholds of the pods that selectors match, beside the one that these pods have anyway.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub selectors: Vec<SelectorThreshold>,
    /// Time at which workloads were restarted with the target, while pods are on the way back. Absent if none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workloads_restart_time: Option<Time>,
    /// Whether other configs may move the pods that they share with this one, because its own rollout is stopped until
    /// somebody acts or another config was moved.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub yields: bool,
    /// Rate at which pods are harmed without a new version. Absent until the first hour was watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub background: Option<BackgroundStatus>,
    /// Versions that were deleted or gave way to others, at most 50, newest last. Each can be created again with the
    /// same content only. Versions that are named by a digest are not listed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub retired: Vec<RetiredVersion>,
    /// Rehearsal whose answers the condition Measurable is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^rehearsal-[0-9a-f]{12}$"))]
    pub rehearsed: Option<String>,
    /// Version that the text of the config's objects is. Absent while spec.version is set, and until the text was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<TextStatus>,
    /// Workloads that read the config's objects themselves, so that they see a text before its version is judged: for
    /// each object that has any. Absent while spec.version is set, and while there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["kind"]))]
    pub readers: Vec<DirectReaders>,
    /// Versions whose text gave way to that of the current version because they failed, at most 8, newest last. A user
    /// who writes such a text again has the last word.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(min = 1, max = 63)))]
    pub written_back: Vec<String>,
}

/// The version that the text of a config's objects is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TextStatus {
    /// Name of the version.
    #[schemars(length(min = 1, max = 63))]
    pub version: String,
    /// Time at which the text had settled.
    pub settle_time: Time,
    /// Field managers that wrote the text last, at most 3, the last one first. Each names itself, and Nudge has not
    /// verified it. Absent if no write of the text is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3), inner(length(min = 1, max = 64)))]
    pub managers: Vec<String>,
    /// Time of the last write of the text, by the clock of the API server. Absent if not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_time: Option<Time>,
}

/// The workloads that read an object of a config themselves: in variables, without an agent, or in mounts that were not
/// moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DirectReaders {
    /// Kind of the object: ConfigMap or Secret.
    pub kind: PartKind,
    /// Number of these workloads.
    pub total: u32,
    /// Kinds and names of the first three, such as Deployment/web.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3), inner(length(min = 1, max = 317)))]
    pub workloads: Vec<String>,
}

impl InternalStatus {
    /// Returns the workloads that read the object of this kind themselves.
    pub fn readers_of(&self, kind: PartKind) -> Option<&DirectReaders> {
        self.readers.iter().find(|readers| readers.kind == kind)
    }
}

impl fmt::Display for DirectReaders {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.workloads.join(", "))?;
        match usize::try_from(self.total).unwrap_or(usize::MAX).saturating_sub(self.workloads.len()) {
            0 => Ok(()),
            others => write!(out, " and {others} more"),
        }
    }
}

/// A version that was deleted or gave way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetiredVersion {
    /// Name of the version.
    pub version: String,
    /// Digests and seals of the objects of the version, by part number.
    #[schemars(length(max = 16))]
    pub digests: Vec<String>,
}

/// Rate at which pods of the config were harmed while nothing moved, or where the target was not assigned to them. Both
/// numbers are halved when they are a week old.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackgroundStatus {
    /// Time at which the count began. Each halving moves it by half a week.
    pub start_time: Time,
    /// Seconds for which healthy pods were watched, added up over the pods.
    pub pod_seconds: u64,
    /// Number of pods that were harmed in podSeconds.
    pub harmed: u64,
}

/// The threshold of one workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadThreshold {
    /// Kind and name of the workload, such as Deployment/web. Absent for pods without a workload.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workload: String,
    /// Pods of the workload whose number is below this run the target.
    #[schemars(range(min = 0, max = 4_294_967_296_u64))]
    pub threshold: u64,
}

/// The threshold of the pods that a selector matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SelectorThreshold {
    /// Selector of the step that set the threshold.
    pub selector: StepSelector,
    /// Pods that match and whose number is below this run the target.
    #[schemars(range(min = 0, max = 4_294_967_296_u64))]
    pub threshold: u64,
}
