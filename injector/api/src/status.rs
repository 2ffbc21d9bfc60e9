//! The status of a `VersionedConfig`: which version is proven, how far pods are moved to another one, and which versions there are.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Reason;

/// The state of the config.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VersionedConfigStatus {
    /// The generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// 32 hex digits that Nudge gives the config with its first status and never changes. Pods are ordered by it, and the keys that seal
    /// Secrets depend on it, so restore it with the rest of the status.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-9a-f]{32}$"))]
    pub identity: Option<String>,
    /// The version that is proven; pods run it unless a rollout has moved them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// The version that was current before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// The version that the published ConfigMap holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<String>,
    /// Since when it holds that version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_at: Option<Time>,
    /// The version that a rollout moves to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The phase of the config.
    pub phase: Phase,
    /// The pods that subscribe.
    pub pods: PodCounts,
    /// The complete versions, in the order in which they were sealed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<VersionStatus>,
    /// Versions that were deleted. Each may be created again with the same content only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub retired: Vec<RetiredVersion>,
    /// How far pods have been moved.
    pub rollout: RolloutStatus,
    /// Ready, Reconciling, Stalled (kstatus conventions), and Published, Drifted, Restarted, Conflict.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

impl VersionedConfigStatus {
    /// The sealed version of this name.
    pub fn version(&self, name: &str) -> Option<&VersionStatus> {
        self.versions.iter().find(|version| version.version == name)
    }

    /// Whether the version is current, a target, or what a rollout would return to.
    pub fn holds(&self, version: &str) -> bool {
        [&self.current, &self.target, &self.previous].into_iter().flatten().any(|held| held == version)
    }
}

/// The phase of a config.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// What spec.current names can't be moved to yet; the condition Ready says why.
    #[default]
    Waiting,
    /// All is as the spec says.
    Current,
    /// Pods are being moved to the target.
    Progressing,
    /// Pods are being moved back.
    RollingBack,
    /// The target failed and everything is back on the version before. It is not tried again until the spec changes.
    Failed,
}

impl Phase {
    /// The phase as the object holds it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "Waiting",
            Self::Current => "Current",
            Self::Progressing => "Progressing",
            Self::RollingBack => "RollingBack",
            Self::Failed => "Failed",
        }
    }
}

/// Numbers of pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodCounts {
    /// Pods that subscribe.
    pub total: u32,
    /// Pods that have reported the version assigned to them; pods that take one by a restart alone, started with it.
    pub updated: u32,
    /// Updated pods that are Ready.
    pub ready: u32,
    /// Pods that reported a failure.
    pub failed: u32,
    /// Pods that the target is assigned to and that are not waited for.
    pub skipped: u32,
    /// Updated of total, such as `10/40`.
    pub summary: String,
}

/// A sealed version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionStatus {
    /// Its name.
    pub version: String,
    /// What it is at the moment.
    pub state: VersionState,
    /// Its objects, by part number.
    pub parts: Vec<PartStatus>,
    /// How many keys it has.
    pub keys: u32,
    /// How many bytes its values have together.
    pub bytes: u64,
    /// When it was sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed_at: Option<Time>,
    /// Set if its creator may not update the ConfigMap of the config's name, or if Nudge could not check that. Such a version never
    /// becomes current by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consent: Option<Consent>,
}

/// What makes a version current that never becomes current by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Consent {
    /// spec.current must be set to it.
    Needed,
    /// spec.current must be set to another version, or removed, and then to it: it named the version before the version was complete.
    NeededAnew,
}

/// What a version is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VersionState {
    /// Complete and not in use.
    Available,
    /// What spec.current names, or a rollout moves to.
    Target,
    /// Proven.
    Current,
    /// It was tried and failed.
    Failed,
    /// One of its objects is gone or is not what was sealed.
    Broken,
}

/// One object of a version, as it was sealed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PartStatus {
    /// ConfigMap or Secret.
    pub kind: PartKind,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Of a ConfigMap, the digest of its content: sha256: and hex. Of a Secret, seal: and hex, which differ in every config, version and
    /// part, and can be compared with nothing.
    pub digest: String,
}

/// The kinds of objects that versions are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum PartKind {
    /// A ConfigMap.
    ConfigMap,
    /// A Secret.
    Secret,
}

impl PartKind {
    /// The kind as objects hold it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }
}

impl std::fmt::Display for PartKind {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.as_str())
    }
}

/// A version that was deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetiredVersion {
    /// Its name.
    pub version: String,
    /// Digests and seals of its parts, by part number.
    pub digests: Vec<String>,
}

/// How far pods have been moved. Every replica of the hub computes a pod's version from this alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutStatus {
    /// Grows with every change of what any pod is assigned.
    pub revision: u64,
    /// The workloads with a threshold above 0.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupStatus>,
    /// What the rollout does; absent while nothing moves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<RolloutStage>,
    /// When the rollout began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began_at: Option<Time>,
    /// On the way back: since when workloads were restarted with the target; absent if they were not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workloads_restarted_at: Option<Time>,
    /// When the rollout last made progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progressed_at: Option<MicroTime>,
    /// Since when every pod that is waited for runs the version assigned to it and is Ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied_at: Option<MicroTime>,
    /// Since when that is not so; absent while it is, or while the rollout is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unproven_since: Option<MicroTime>,
    /// How long a batch is watched before the next one; absent while no batch is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch: Option<BatchWatch>,
    /// Pods that the target is assigned to and that are not waited for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<SkippedPod>,
    /// Restarts that pods already had when the target was assigned to them. Pods without restarts are not listed, and at most a thousand are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub restarts: Vec<PodRestarts>,
    /// Of pods that are not listed in `restarts`, only restarts from this time on count; absent while all have room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts_counted_since: Option<Time>,
    /// The version that was tried last and failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<RolloutFailure>,
}

/// What a rollout is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RolloutStage {
    /// The target is assigned to pods batch by batch.
    Moving,
    /// All pods run the target, which is watched for a while.
    Baking,
    /// The target is published, and workloads that take it by a restart are restarted.
    Restarting,
    /// Pods leave a target that is not requested any more.
    Leaving,
    /// Pods leave a target that failed.
    RollingBack,
}

/// How long a batch is watched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchWatch {
    /// For how many seconds every pod of it must have been Ready with the new version.
    pub seconds: u32,
    /// Why so long: spec.rollout.minReadySeconds, or which probe.
    pub reason: String,
}

/// A pod that the target is assigned to and that is not waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkippedPod {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Why: NotReady, RestartedRecently, Pending, Ending, NodeNotReady, NoContact, FailedBefore, NotAcknowledged.
    pub reason: Reason,
    /// This was so already when the target was assigned to it. Such a pod holds nothing up. While another skipped pod is not Ready, there
    /// is no further batch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub before: bool,
}

/// How often containers of a pod had been restarted when the target was assigned to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodRestarts {
    /// The pod's uid.
    pub uid: String,
    /// Restarts of its containers other than the agent.
    pub count: i32,
}

/// A version that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutFailure {
    /// The version.
    pub version: String,
    /// The generation of the spec that asked for it. It is not tried again before that changes.
    pub generation: i64,
    /// Why: PodNotReady, ContainerRestarted, ProgressDeadlineExceeded, RestartFailed, or the reason that the pod reported.
    pub reason: Reason,
    /// A message that names the pod.
    pub message: String,
}

/// The threshold of one workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupStatus {
    /// Kind and name, such as Deployment/web; absent for pods without a workload. (Kubernetes 1.20 takes an empty string for null.)
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workload: String,
    /// Pods whose number (of 32 bits) is below this run the target; 4294967296 is all of them.
    #[schemars(range(min = 0, max = 4_294_967_296_u64))]
    pub threshold: u64,
}
