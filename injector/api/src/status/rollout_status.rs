//! The state of a rollout in a status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{EvidenceStatus, Reason};

/// State of the rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutStatus {
    /// Number of steps that went out.
    #[serde(skip_serializing_if = "crate::status::is_zero")]
    pub step: u32,
    /// Name of the step that went out last. Absent if the step has no name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_name: Option<String>,
    /// Time at which the last step went out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_time: Option<Time>,
    /// Stage of the rollout. Absent while nothing moves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<RolloutStage>,
    /// Time at which the rollout began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// Time at which the last step went out, or the stage changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_time: Option<MicroTime>,
    /// Time for which a step is watched before the next one, with the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch: Option<Watch>,
    /// Evidence for and against the target, in numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<EvidenceStatus>,
    /// Gate that keeps the version from continuing although nothing is wrong with it. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateStatus>,
    /// Version that was tried last and failed, with the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<RolloutFailure>,
}

impl RolloutStatus {
    /// Returns whether pods move, or have moved, to the target.
    pub fn is_forward(&self) -> bool {
        matches!(self.stage, Some(RolloutStage::Moving | RolloutStage::Baking | RolloutStage::Restarting))
    }

    /// Returns whether pods return from the target to another version.
    pub fn is_return(&self) -> bool {
        matches!(self.stage, Some(RolloutStage::Leaving | RolloutStage::Returning | RolloutStage::RollingBack))
    }
}

/// Gate that keeps a version from continuing. The condition Ready says it in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GateStatus {
    /// Reason for programs: AwaitingApproval, OutsideWindow, OnHold, PoliciesUnknown or InvalidSpec.
    pub reason: Reason,
    /// Time at which the wait ends by itself, because a window opens or the hold ends. Absent if somebody must act.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_time: Option<Time>,
}

/// Stage of the rollout. `Moving`: it assigns the target step by step. `Baking`: all pods run the target, and are
/// watched. `Restarting`: the target is published, and workloads restart for it. `Leaving`: pods leave a target that is
/// not requested any more. `Returning`: pods return to the previous version, as asked. `RollingBack`: pods leave a
/// target that failed. Absent while nothing moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RolloutStage {
    /// The target is assigned to pods step by step.
    Moving,
    /// All pods run the target, which is watched for a while.
    Baking,
    /// The target is published, and workloads that take it by a restart are restarted.
    Restarting,
    /// Pods leave a target that is not requested any more.
    Leaving,
    /// Pods return to the previous version, which is requested.
    Returning,
    /// Pods leave a target that failed.
    RollingBack,
}

/// Time for which a step is watched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Watch {
    /// Number of seconds for which every pod of the step must be Ready with the new version.
    pub seconds: u32,
    /// Origin of the time: spec.rollout.minReadySeconds, or a probe.
    pub reason: String,
    /// Reason why pods can be bad for longer without being noticed: they have no probe, or one that needs longer.
    /// Absent if they can't.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weak: Option<String>,
}

/// A version that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutFailure {
    /// Name of the version that failed.
    pub version: String,
    /// Digest of the content that failed: `sha256:` and 48 hex digits. Other content has not failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// Last request to retry the version before it failed. A later one, or another value of spec.version in between,
    /// tries it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_time: Option<Time>,
    /// Reason for programs: PodNotReady, ContainerRestarted, NewPodsFailing, ProgressDeadlineExceeded, RestartFailed,
    /// or the reason that a pod reported.
    pub reason: Reason,
    /// Message for people, which names the pod.
    pub message: String,
    /// Reason of the spec.rollout.override that assigned the version. Another reason assigns it again.
    #[serde(default, rename = "override", skip_serializing_if = "Option::is_none")]
    pub overridden: Option<String>,
}
