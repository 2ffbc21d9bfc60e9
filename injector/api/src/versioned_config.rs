//! `VersionedConfig`: which version of a config the user wants, and how the move to it is made.

use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status::VersionedConfigStatus;

/// A named set of keys and values with versions. Each version is one or several immutable ConfigMaps and Secrets with
/// the labels nudge.dev/config and nudge.dev/version; this object says which of them is current.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "nudge.dev",
    version = "v1alpha1",
    kind = "VersionedConfig",
    namespaced,
    shortname = "vcfg",
    category = "nudge",
    doc = "A config with versions: which of them is wanted, which is proven, and how pods are moved.",
    status = "VersionedConfigStatus",
    derive = "Default",
    crates(kube_core = "::kube_core"),
    derive = "PartialEq",
    printcolumn = r#"{"name":"Current","type":"string","jsonPath":".status.current","description":"The version that is proven and runs."}"#,
    printcolumn = r#"{"name":"Target","type":"string","jsonPath":".status.target","description":"The version that a rollout moves to."}"#,
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase","description":"Where the config stands."}"#,
    printcolumn = r#"{"name":"Updated","type":"string","jsonPath":".status.pods.summary","description":"Pods that run what they are to run, of all that subscribe."}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct VersionedConfigSpec {
    /// The version that pods should run. It may name a version that is not there yet: nothing moves until it is. When
    /// absent, the first complete version becomes current and stays it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$"))]
    pub current: Option<String>,

    /// How pods are moved to another version.
    #[serde(default)]
    pub rollout: RolloutSpec,

    /// What happens to workloads that use the published ConfigMap of this name without an agent.
    #[serde(default)]
    pub without_agent: WithoutAgent,

    /// The service accounts whose pods may get this config, by their names in this namespace. When absent, every pod of the namespace may.
    /// The config is not secret from users who may read the ConfigMaps of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 64),
        inner(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub subscribers: Option<Vec<String>>,

    /// How many versions made by kubectl nudge are kept beside those in use. Objects made otherwise are never pruned.
    #[serde(default = "default_history_limit")]
    #[schemars(range(min = 0, max = 500))]
    pub history_limit: u32,
}

impl VersionedConfigSpec {
    /// Whether pods of this service account may get the config. A pod that names none has the account `default`.
    pub fn admits(&self, service_account: &str) -> bool {
        let name = if service_account.is_empty() { "default" } else { service_account };
        self.subscribers.as_ref().is_none_or(|allowed| allowed.iter().any(|one| one == name))
    }
}

fn default_history_limit() -> u32 {
    10
}

impl Default for VersionedConfigSpec {
    /// What the API server makes of an empty spec. (A derived default would keep no history at all.)
    fn default() -> Self {
        Self {
            current: None,
            rollout: RolloutSpec::default(),
            without_agent: WithoutAgent::default(),
            subscribers: None,
            history_limit: default_history_limit(),
        }
    }
}

/// How pods are moved to another version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutSpec {
    /// How many pods are moved at a time: a number from 1 of each workload, or a share from 1% to 100% of all pods and at most so much of
    /// each workload. When absent, one pod of the config is moved first, and then 25% at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<Batch>,
    /// How long every pod of a batch must have been Ready with the new version before the next batch, in seconds. It is longer where the
    /// readiness and liveness probes of these pods need longer to notice a change, up to 300 seconds.
    #[schemars(range(min = 0, max = 86400))]
    pub min_ready_seconds: u32,
    /// How long all pods run the new version before it is published and becomes current, in seconds.
    #[schemars(range(min = 0, max = 604_800))]
    pub bake_seconds: u32,
    /// How long a pod's containers have for their acknowledgement, in seconds.
    #[schemars(range(min = 1, max = 86400))]
    pub ack_timeout_seconds: u32,
    /// How long the rollout may stand still before it counts as failed, in seconds.
    #[schemars(range(min = 1, max = 604_800))]
    pub progress_deadline_seconds: u32,
    /// What a failure leads to.
    pub on_failure: OnFailure,
    /// Holds the rollout where it is.
    pub paused: bool,
}

impl Default for RolloutSpec {
    fn default() -> Self {
        Self {
            batch: None,
            min_ready_seconds: 10,
            bake_seconds: 60,
            ack_timeout_seconds: 30,
            progress_deadline_seconds: 600,
            on_failure: OnFailure::default(),
            paused: false,
        }
    }
}

/// A number of pods or a share of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Batch {
    /// So many pods.
    Count(u32),
    /// Such as `25%`.
    Share(String),
}

impl JsonSchema for Batch {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Batch".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        // As every IntOrString of Kubernetes; the pattern is checked for strings only.
        schemars::json_schema!({
            "x-kubernetes-int-or-string": true,
            "minimum": 1,
            "maximum": 2_147_483_647,
            "pattern": "^([1-9][0-9]?|100)%$"
        })
    }
}

/// What a failed rollout leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnFailure {
    /// Every pod returns to the previous version.
    #[default]
    Rollback,
    /// The rollout stops where it is.
    Pause,
}

/// What happens to workloads that use the published ConfigMap without an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WithoutAgent {
    /// They are restarted, one after another, by their own rolling update.
    #[default]
    Restart,
    /// They are left alone.
    Ignore,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_what_an_empty_spec_says() {
        let empty: VersionedConfigSpec = serde_json::from_str("{}").unwrap();
        assert_eq!(VersionedConfigSpec::default(), empty);
        assert_eq!(empty.history_limit, 10);
    }

    #[test]
    fn subscribers_are_all_service_accounts_or_those_that_are_listed() {
        let admits =
            |spec: &str, account: &str| serde_json::from_str::<VersionedConfigSpec>(spec).unwrap().admits(account);
        assert!(admits("{}", "any"));
        let some = r#"{"subscribers":["shop","worker"]}"#;
        assert!(admits(some, "worker"));
        for other in ["default", "work", "workers", ""] {
            assert!(!admits(some, other), "{other}");
        }
        assert!(admits(r#"{"subscribers":["default"]}"#, ""), "a pod that names none has the default account");
        assert!(!admits(r#"{"subscribers":[]}"#, "shop"), "an empty list admits nobody");
    }
}
