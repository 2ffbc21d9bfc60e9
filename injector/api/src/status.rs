//! The status of a `VersionedConfig`: which version is proven, how far pods are moved to another one, and which
//! versions there are.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use nudge_protocol::volumes::ObjectKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::variant_names::impl_as_str;
use crate::{EvidenceStatus, Reason, Release, StepSelector};

/// State of the config: its versions, its pods and its rollout. Only Nudge writes the status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VersionedConfigStatus {
    /// The metadata.generation that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Requested version: spec.version or, when that is absent, the version of the text of the config's
    /// objects or, without objects, the first complete version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_version: Option<String>,
    /// Version that is proven: it has passed its steps and its bake. Pods run it unless a rollout has moved them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_version: Option<String>,
    /// Version that a rollout moves pods to. Absent while nothing moves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_version: Option<String>,
    /// Version that was current before. `kubectl nudge rollback` returns to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_version: Option<String>,
    /// Version in the published ConfigMap, which has the name of the config.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_version: Option<String>,
    /// Time at which publishedVersion was written to the ConfigMap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish_time: Option<Time>,
    /// Version in the published Secret, which has the name of the config.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_secret_version: Option<String>,
    /// Time at which publishedSecretVersion was written to the Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_publish_time: Option<Time>,
    /// Number of pods that use the config, and of those that run what they should.
    pub pods: PodCounts,
    /// Complete versions in the order in which they were sealed, at most 50.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["version"]))]
    pub versions: Vec<VersionStatus>,
    /// Versions that are not sealed because they break a rule of spec.validation, at most 2, newest last. A version is
    /// judged again when the rules change, or when it is created again with other content.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    pub invalid: Vec<InvalidVersion>,
    /// State of the rollout, and the version that failed last.
    pub rollout: RolloutStatus,
    /// The last 20 releases, newest last, as `kubectl nudge history` shows them. Older ones lose their details when all
    /// have more than 16 KiB.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub releases: Vec<Release>,
    /// Conditions of the config: Ready, Reconciling and Stalled, as kstatus defines them; Published, Drifted,
    /// SecretPublished, Fetched, UnstagedReaders, Restarted, Conflict, WeakEvidence, Suspect and Measurable; Impaired
    /// while calls beside the rollout fail; and StatusComplete while it is False.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[schemars(length(max = 16))]
    pub conditions: Vec<Condition>,
    /// State that only Nudge reads. It is restored with the rest of the status.
    pub internal: InternalStatus,
}

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
    #[serde(skip_serializing_if = "crate::evidence::is_zero")]
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
    /// Workloads that read the config's objects themselves, so that they see a text before its version is judged.
    /// Absent while spec.version is set, and while there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readers: Option<DirectReaders>,
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
}

/// The workloads that read the objects of a config themselves: in variables, without an agent, or in mounts that were
/// not moved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DirectReaders {
    /// Number of these workloads.
    pub total: u32,
    /// Kinds and names of the first five, such as Deployment/web.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5), inner(length(min = 1, max = 317)))]
    pub workloads: Vec<String>,
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

impl VersionedConfigStatus {
    /// Returns the sealed version of this name.
    pub fn version(&self, name: &str) -> Option<&VersionStatus> {
        self.versions.iter().find(|version| version.version == name)
    }

    /// Returns whether the version is current, a target, or what a rollout would return to.
    pub fn holds(&self, version: &str) -> bool {
        [&self.current_version, &self.target_version, &self.previous_version]
            .into_iter()
            .flatten()
            .any(|name| name == version)
    }

    /// Returns whether a rollout holds the version, or a published object has its content.
    pub fn is_in_use(&self, version: &str) -> bool {
        let published = [&self.published_version, &self.published_secret_version];
        self.holds(version) || published.into_iter().flatten().any(|name| name == version)
    }
}

/// The maximum number of containers that are left alone, in [`PodCounts`].
pub const MAX_LEFT_ALONE: usize = 8;

/// Numbers of pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodCounts {
    /// Number of pods that use the config.
    pub total: u32,
    /// Number of pods that run targetVersion, or currentVersion where nothing moves, by the reports of their agents. A
    /// pod whose containers take versions only by a restart has started with it.
    pub on_target: u32,
    /// Number of pods that run the version assigned to them and are Ready.
    pub ready: u32,
    /// Number of pods that reported a failure.
    pub failed: u32,
    /// onTarget of total, such as `10/40`.
    pub summary: String,
    /// Containers that are left alone (`notify: none`), such as `Deployment/web: log`: nothing is claimed about the
    /// version that they run. At most 8 are named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub left_alone: Vec<String>,
}

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

/// State of the rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutStatus {
    /// Number of steps that went out.
    #[serde(skip_serializing_if = "crate::evidence::is_zero")]
    pub step: u32,
    /// Name of the step that went out last, if it has one.
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
    pub withheld: Option<WithheldStatus>,
    /// Version that was tried last and failed, with the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<RolloutFailure>,
}

/// Gate that keeps a version from continuing. The condition Ready says it in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WithheldStatus {
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

/// Rate at which pods of the config were harmed while nothing moved, or where the target was not assigned to them. Both
/// numbers are halved when they are a week old.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackgroundStatus {
    /// Time at which the count began. Each time that it is halved, after a week, the time moves on by half a week.
    pub start_time: Time,
    /// Seconds for which healthy pods were watched, added up over the pods.
    pub pod_seconds: u64,
    /// Number of pods that were harmed in podSeconds.
    pub harmed: u64,
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
