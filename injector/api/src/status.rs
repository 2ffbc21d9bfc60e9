//! The status of a `VersionedConfig`: which version is proven, how far pods are moved to another one, and which versions there are.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ConditionType, Reason, Release, StepSelector, find_condition};

/// The state of the config.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VersionedConfigStatus {
    /// The generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The version that is asked for: what spec.version says, or without it the first complete version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_version: Option<String>,
    /// The version that has passed its steps and its bake. Pods run it unless a rollout has moved them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_version: Option<String>,
    /// The version that a rollout moves pods to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_version: Option<String>,
    /// The version that was current before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_version: Option<String>,
    /// The version that the published ConfigMap holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_version: Option<String>,
    /// When the ConfigMap was written with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish_time: Option<Time>,
    /// The version that the published Secret holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_secret_version: Option<String>,
    /// When the Secret was written with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_publish_time: Option<Time>,
    /// The pods that subscribe.
    pub pods: PodCounts,
    /// The complete versions, in the order in which they were sealed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["version"]))]
    pub versions: Vec<VersionStatus>,
    /// Versions that are not sealed because they break a rule of spec.validation; at most 2, the newest last. Each is judged again when the
    /// rules change, or it is created again with other content.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    pub invalid: Vec<InvalidVersion>,
    /// How far pods have been moved.
    pub rollout: RolloutStatus,
    /// The last 20 releases, the newest last; the older ones without details where all have more than 16 KiB. kubectl nudge history shows them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub releases: Vec<Release>,
    /// Ready, Reconciling, Stalled (kstatus conventions), and Published, Drifted, SecretPublished, Restarted, Conflict, WeakEvidence, Suspect; StatusComplete where it is False.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[schemars(length(max = 16))]
    pub conditions: Vec<Condition>,
    /// What only Nudge reads. It is restored with the rest of the status.
    pub internal: InternalStatus,
}

/// What only Nudge reads: how pods are assigned, and what it remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct InternalStatus {
    /// 32 hex digits that Nudge gives the config with its first status and never changes. Pods are ordered by it, and the keys that seal
    /// Secrets depend on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-9a-f]{32}$"))]
    pub identity: Option<String>,
    /// Grows with every change of what any pod is assigned.
    pub revision: u64,
    /// Pods whose number (of 32 bits) is below this run the target; 4294967296 is all of them. Workloads that are listed have their own
    /// threshold instead.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 4_294_967_296_u64))]
    pub threshold: u64,
    /// Thresholds of workloads with 20 pods or more; of the largest 100, and of those that were among them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 200))]
    pub workloads: Vec<WorkloadThreshold>,
    /// Thresholds of pods that selectors match, beside the one that they have anyway.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub selectors: Vec<SelectorThreshold>,
    /// On the way back: since when workloads were restarted with the target; absent if they were not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workloads_restart_time: Option<Time>,
    /// The move stands still until somebody acts or another config was moved: pods that it shares with other configs may be moved by these.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub yields: bool,
    /// How often pods are harmed without a new version; absent until the first hour was watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub background: Option<BackgroundStatus>,
    /// Versions that were deleted, the newest last; of those whose names are no digests. Each may be created again with the same content only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub retired: Vec<RetiredVersion>,
}

impl VersionedConfigStatus {
    /// The sealed version of this name.
    pub fn version(&self, name: &str) -> Option<&VersionStatus> {
        self.versions.iter().find(|version| version.version == name)
    }

    /// Where the config stands.
    pub fn state(&self) -> ConfigState {
        let ready = find_condition(&self.conditions, ConditionType::Ready);
        match (self.rollout.stage, ready) {
            (Some(RolloutStage::RollingBack | RolloutStage::Returning), _) => ConfigState::RollingBack,
            (Some(_), _) => ConfigState::Progressing,
            (None, Some(ready)) if ready.status == "True" => ConfigState::Current,
            (None, Some(ready)) if ready.reason == Reason::Failed.as_str() && self.rollout.failure.is_some() => {
                ConfigState::Failed
            }
            (None, _) => ConfigState::Waiting,
        }
    }

    /// Whether the version is current, a target, or what a rollout would return to.
    pub fn holds(&self, version: &str) -> bool {
        [&self.current_version, &self.target_version, &self.previous_version]
            .into_iter()
            .flatten()
            .any(|held| held == version)
    }
}

/// Where a config stands, in one word for commands, metrics and the page. The object has conditions instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ConfigState {
    /// Nothing moves, and what is asked for is not current; the condition Ready says why.
    #[default]
    Waiting,
    /// All is as the spec says.
    Current,
    /// Pods are being moved to the target.
    Progressing,
    /// Pods are being moved back.
    RollingBack,
    /// The target failed and everything is back on the version before.
    Failed,
}

impl ConfigState {
    /// Its name, as commands and metrics have it.
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
    /// Pods that run the target, or the current version where nothing moves. A pod has reported it; one that takes it by a restart alone has
    /// started with it.
    pub on_target: u32,
    /// Pods that run what is assigned to them and are Ready.
    pub ready: u32,
    /// Pods that reported a failure.
    pub failed: u32,
    /// On target of total, such as `10/40`.
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
    /// Stands for its content: the first 32 hex digits of the digest that an approval names.
    #[serde(default)]
    pub digest: String,
    /// Its objects, by part number.
    #[schemars(length(max = 16))]
    pub parts: Vec<PartStatus>,
    /// How many keys it has.
    pub keys: u32,
    /// How many bytes its values have together.
    pub bytes: u64,
    /// When it was sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal_time: Option<Time>,
    /// Set if its creator may not update the ConfigMap of the config's name, or if Nudge could not check that. Such a version never
    /// becomes current by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consent: Option<Consent>,
}

/// A version that breaks a rule of spec.validation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InvalidVersion {
    /// Its name.
    pub version: String,
    /// Always Invalid.
    pub reason: Reason,
    /// Keys, places and rules, and no values.
    pub message: String,
    /// Stands for the rules that it was judged by: 24 hex digits.
    pub rules: String,
    /// Stands for the content that was judged: 24 hex digits.
    pub content: String,
}

impl InvalidVersion {
    /// How many are in the status.
    pub const MOST: usize = 2;
}

/// What makes a version current that never becomes current by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Consent {
    /// spec.version must be set to it.
    Needed,
    /// spec.version must be set to another version, or removed, and then to it: it named the version before the version was complete.
    NeededAnew,
}

/// What a version is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VersionState {
    /// Complete and not in use.
    Available,
    /// What spec.version names, or a rollout moves to.
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
    #[schemars(length(max = 16))]
    pub digests: Vec<String>,
}

/// How far pods have been moved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutStatus {
    /// How many steps went out.
    #[serde(skip_serializing_if = "is_zero")]
    pub step: u32,
    /// The name of the last of them, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_name: Option<String>,
    /// When the last of them did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_time: Option<Time>,
    /// What the rollout does; absent while nothing moves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<RolloutStage>,
    /// When the rollout began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When the rollout last made progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_time: Option<MicroTime>,
    /// How long a step is watched before the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch: Option<Watch>,
    /// What is known for and against the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<EvidenceStatus>,
    /// What keeps the version from going on although nothing is wrong with it; absent where nothing does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withheld: Option<WithheldStatus>,
    /// The version that was tried last and failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<RolloutFailure>,
}

/// What keeps a version from going on. The condition Ready says it in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WithheldStatus {
    /// AwaitingApproval, OutsideWindow, OnHold or PoliciesUnknown.
    pub reason: Reason,
    /// When that ends, if it ends by itself: when the next window opens, or the hold ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_time: Option<Time>,
}

/// What a rollout is doing.
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

/// How long a step is watched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Watch {
    /// For how many seconds every pod of it must have been Ready with the new version.
    pub seconds: u32,
    /// Why so long: spec.rollout.minReadySeconds, or which probe.
    pub reason: String,
    /// Set where the pods can be bad for longer without being seen: they have no probes, or one that needs longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weak: Option<String>,
}

/// What is known for and against the target, in numbers. Only pods count that were healthy when the version was assigned to them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EvidenceStatus {
    /// Pods that the target is assigned to.
    pub assigned: u32,
    /// How many of them were harmed.
    pub harmed: u32,
    /// Pods that it is not assigned to.
    pub unassigned: u32,
    /// How many of these were harmed in the same time.
    pub unassigned_harmed: u32,
    /// Pods that the target is assigned to and that are not waited for: they were not healthy, or can't be reached.
    pub not_waited_for: u32,
    /// How all that the target is assigned to were harmed; absent where one was harmed in another way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The pod that was harmed first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<HarmedPod>,
    /// What spec.rollout.analysis says.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub analysis: Vec<AnalysisStatus>,
}

/// The last answer of one analysis, and what follows from all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnalysisStatus {
    /// Its name.
    pub name: String,
    /// What follows.
    pub verdict: AnalysisVerdict,
    /// The number of the pods with the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The number of the pods without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<String>,
    /// When it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measure_time: Option<Time>,
}

/// What the answers of an analysis say of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AnalysisVerdict {
    /// There are too few answers yet.
    Pending,
    /// Nothing against it.
    Clear,
    /// Nobody can say.
    Inconclusive,
    /// It is bad.
    Bad,
}

/// A pod that was harmed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HarmedPod {
    /// Its name.
    pub name: String,
    /// How: PodNotReady, ContainerRestarted, or what it reported.
    pub reason: Reason,
    /// How many seconds after its notification; negative where it was harmed before it said that it was notified, absent where another leader
    /// assigned the version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_seconds: Option<i64>,
}

/// How often pods of the config were harmed while nothing moved, or where the target was not assigned to them. Both numbers are halved
/// when they are a week old.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackgroundStatus {
    /// Since when they are counted, or since when they would be had they not been halved.
    pub start_time: Time,
    /// Seconds for which healthy pods were watched, added up over pods.
    pub pod_seconds: u64,
    /// How many pods were harmed in them.
    pub harmed: u64,
}

/// A version that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutFailure {
    /// The version.
    pub version: String,
    /// Stands for its content, which alone failed: `sha256:` and 48 hex digits.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// The last request to retry it before it failed. It is tried again after a later one, or after spec.version had another value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_time: Option<Time>,
    /// Why: PodNotReady, ContainerRestarted, NewPodsFailing, ProgressDeadlineExceeded, RestartFailed, or the reason that the pod reported.
    pub reason: Reason,
    /// A message that names the pod.
    pub message: String,
    /// The reason of spec.rollout.override, where it asked for the version. Another reason asks for it anew.
    #[serde(default, rename = "override", skip_serializing_if = "Option::is_none")]
    pub overridden: Option<String>,
}

/// The threshold of one workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadThreshold {
    /// Kind and name, such as Deployment/web; absent for pods without a workload. (Kubernetes 1.20 takes an empty string for null.)
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workload: String,
    /// Pods whose number is below this run the target.
    #[schemars(range(min = 0, max = 4_294_967_296_u64))]
    pub threshold: u64,
}

/// The threshold of the pods that a selector matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SelectorThreshold {
    /// The selector of the step.
    pub selector: StepSelector,
    /// Pods whose number is below this run the target.
    #[schemars(range(min = 0, max = 4_294_967_296_u64))]
    pub threshold: u64,
}

/// Whether the number says nothing.
pub(crate) fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}
