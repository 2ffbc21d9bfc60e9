//! The status of a `VersionedConfig`: which version is proven, how far pods are moved to another one, and which
//! versions there are.

mod config_state;
mod evidence;
mod internal_status;
mod release;
mod rollout_status;
mod version_status;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::config_state::ConfigState;
pub use self::evidence::{AnalysisStatus, AnalysisVerdict, EvidenceStatus, HarmedPod};
pub(crate) use self::evidence::{is_zero, number};
pub use self::internal_status::{
    BackgroundStatus, DirectReaders, InternalStatus, RetiredVersion, SelectorThreshold, TextStatus, WorkloadThreshold,
};
pub use self::release::{Release, ReleaseApproval, ReleaseOutcome, ReleaseOverride, ReleaseRequester, ReleaseStep};
pub use self::rollout_status::{GateStatus, RolloutFailure, RolloutStage, RolloutStatus, Watch};
pub use self::version_status::{Consent, InvalidVersion, PartKind, PartStatus, VersionState, VersionStatus};

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
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// State that only Nudge reads. It is restored with the rest of the status.
    pub internal: InternalStatus,
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
