//! `VersionedConfig`: which version of a config the user wants, and how the move to it is made.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::governance::{Analysis, Approval, Hold, Window};
use super::status::{PartKind, VersionedConfigStatus};
use super::validation::ValidationRule;

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
    printcolumn = r#"{"name":"Desired","type":"string","jsonPath":".status.desiredVersion","description":"The version that is asked for."}"#,
    printcolumn = r#"{"name":"Current","type":"string","jsonPath":".status.currentVersion","description":"The version that has passed its steps and its bake."}"#,
    printcolumn = r#"{"name":"On-Target","type":"string","jsonPath":".status.pods.summary","description":"Pods that run the target, or the current version at rest, of all that subscribe."}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status","description":"The desired version is current."}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason","description":"Why, or why not."}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Message","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type=='Ready')].message","description":"The reason in words."}"#
)]
#[serde(rename_all = "camelCase")]
pub struct VersionedConfigSpec {
    /// The version that pods should run. It may name a version that is not there yet: nothing moves until it is. When
    /// absent, the first complete version becomes current and stays it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$"))]
    pub version: Option<String>,

    /// How pods are moved to another version.
    #[serde(default)]
    pub rollout: RolloutSpec,

    /// What is kept at the current version, for workloads without an agent. `ConfigMap`: the ConfigMap of the config's name, if it is there.
    /// `Secret`: the Secret of the config's name, which Nudge creates, with the type of the version's Secrets.
    #[serde(default = "default_objects")]
    #[schemars(length(max = 2), extend("x-kubernetes-list-type" = "set"))]
    pub objects: Vec<PartKind>,

    /// What happens to workloads that use the published ConfigMap or Secret of this name without an agent.
    #[serde(default)]
    pub agentless_policy: AgentlessPolicy,

    /// The service accounts whose pods may get this config, by their names in this namespace. When absent, every pod of the namespace may.
    /// The config is not secret from users who may read the ConfigMaps of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 64),
        inner(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub allowed_service_accounts: Option<Vec<String>>,

    /// How many versions made by kubectl nudge are kept beside those in use. Objects made otherwise are never pruned.
    #[serde(default = "default_history_limit")]
    #[schemars(range(min = 0, max = 40))]
    pub history_limit: u32,

    /// What the content of a version must be. A version that breaks a rule is never sealed, so no pod gets it. Sealed versions are not judged
    /// again when the rules change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub validation: Vec<ValidationRule>,
}

impl VersionedConfigSpec {
    /// Whether pods of this service account may get the config. A pod that names none has the account `default`.
    pub fn admits(&self, service_account: &str) -> bool {
        let name = if service_account.is_empty() { "default" } else { service_account };
        self.allowed_service_accounts.as_ref().is_none_or(|allowed| allowed.iter().any(|one| one == name))
    }

    /// Whether an object of this kind and the config's name is kept at the current version.
    pub fn publishes(&self, kind: PartKind) -> bool {
        self.objects.contains(&kind)
    }
}

fn default_objects() -> Vec<PartKind> {
    vec![PartKind::ConfigMap]
}

fn default_history_limit() -> u32 {
    10
}

impl Default for VersionedConfigSpec {
    /// What the API server makes of an empty spec. (A derived default would keep no history at all.)
    fn default() -> Self {
        Self {
            version: None,
            rollout: RolloutSpec::default(),
            objects: default_objects(),
            agentless_policy: AgentlessPolicy::default(),
            allowed_service_accounts: None,
            history_limit: default_history_limit(),
            validation: Vec::new(),
        }
    }
}

/// A version that is assigned to all pods at once, whatever else the spec says of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Override {
    /// The version.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$"))]
    pub version: String,
    /// Why nobody can wait.
    #[schemars(length(min = 1, max = 256))]
    pub reason: String,
    /// When it ends: at most a day after it was set. From then on it means nothing, and what runs stays as it is.
    pub until_time: Time,
}

impl Override {
    /// How far ahead the end may be when it is set.
    pub const LONGEST: SignedDuration = SignedDuration::from_hours(24);

    /// Whether it assigns this version at this time.
    pub fn assigns(&self, version: &str, now: Timestamp) -> bool {
        self.version == version && now < self.until_time.0
    }
}

/// How pods are moved to another version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutSpec {
    /// How many pods of the config run the new version after each step, added up. The last step is always all pods, also where it is not
    /// listed.
    #[schemars(length(min = 1, max = 32))]
    pub steps: Vec<Step>,
    /// How long every pod of a step must have been Ready with the new version before the next step, in seconds. It is longer where the
    /// readiness and liveness probes of these pods need longer to notice a change, after the first step up to 300 seconds.
    #[schemars(range(min = 0, max = 86400))]
    pub min_ready_seconds: u32,
    /// How long all pods run the new version before it is published and becomes current, in seconds.
    #[schemars(range(min = 0, max = 604_800))]
    pub bake_seconds: u32,
    /// How long a pod's containers have for their acknowledgement, in seconds.
    #[schemars(range(min = 1, max = 86400))]
    pub ack_timeout_seconds: u32,
    /// How long the rollout may wait without progress before it counts as failed, in seconds.
    #[schemars(range(min = 1, max = 604_800))]
    pub progress_deadline_seconds: u32,
    /// How many of the pods that the new version is assigned to may be harmed: a number, or a share that is rounded down. When absent, Nudge
    /// weighs harmed pods against those that do not have the version, and against how often pods of the config are harmed without cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_harmed: Option<MaxHarmed>,
    /// What a failure leads to.
    pub on_failure: OnFailure,
    /// Within how many seconds Ready pods are notified of the way back. Others are notified at once. When absent, 0, and for pods that restart
    /// in place 2 for each pod of the config, at most 30.
    #[schemars(range(min = 0, max = 600))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollback_spread_seconds: Option<u32>,
    /// Assigns a version to all pods at once, without steps, approval or a window. It counts until its end, while `version` is what spec.version
    /// says. To set it, a user needs the verb `override` on the config.
    #[serde(rename = "override", skip_serializing_if = "Option::is_none")]
    pub overridden: Option<Override>,
    /// Who must agree before a version is assigned to any pod. When absent, nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// When versions may go on. Outside of all windows no step goes out, and nothing is published; a version that is bad goes back all the
    /// same. When empty, at any time.
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<Window>,
    /// No version begins or goes on, whatever the windows say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// The numbers that a version is judged by beside the health of pods.
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub analysis: Vec<Analysis>,
}

impl Default for RolloutSpec {
    fn default() -> Self {
        Self {
            steps: default_steps(),
            min_ready_seconds: 10,
            bake_seconds: 60,
            ack_timeout_seconds: 30,
            progress_deadline_seconds: 600,
            max_harmed: None,
            on_failure: OnFailure::default(),
            rollback_spread_seconds: None,
            overridden: None,
            approval: None,
            windows: Vec::new(),
            hold: None,
            analysis: Vec::new(),
        }
    }
}

/// One step of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Its name, unique among the steps. A step that went out is found by it where others are added or taken away before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: Option<String>,
    /// How many pods have the new version after the step: a number from 1, or a share from 1% to 100%. They are pods of the config, or where
    /// there is a selector, those that it matches.
    pub pods: Pods,
    /// The pods that the step is about. A pod counts by the labels that it was created with. At most 8 selectors differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<StepSelector>,
    /// How long the next step waits in addition to the time for which this one is watched, in seconds. Without effect before the bake.
    #[serde(default, skip_serializing_if = "crate::status::is_zero")]
    #[schemars(range(min = 0, max = 604_800))]
    pub pause_seconds: u32,
}

impl Step {
    /// A step of so many pods of the config.
    pub fn of(pods: Pods) -> Self {
        Self { name: None, pods, selector: None, pause_seconds: 0 }
    }
}

fn default_steps() -> Vec<Step> {
    let share = |share: &str| Step::of(Pods::Share(share.to_owned()));
    vec![Step::of(Pods::Count(1)), share("25%"), share("50%"), share("100%")]
}

/// Pods with all of these labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepSelector {
    /// The labels.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 8, "additionalProperties" = {"type": "string", "maxLength": 63, "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"}))]
    pub match_labels: BTreeMap<String, String>,
}

impl StepSelector {
    /// How many selectors of a config may differ.
    pub const MOST: usize = 8;
}

/// A number of pods or a share of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Pods {
    /// So many pods.
    Count(u32),
    /// Such as `25%`.
    Share(String),
}

impl Pods {
    /// How many of `all` pods that are: at least one, if there is any.
    pub fn of(&self, all: usize) -> usize {
        let count = match self {
            Self::Count(count) => usize::try_from(*count).unwrap_or(usize::MAX),
            Self::Share(share) => (all * usize::from(percent(share))).div_ceil(100),
        };
        count.clamp(1, all.max(1)).min(all)
    }
}

/// The API server accepts shares from 0% to 100% only; anything else counts as the smallest.
fn percent(share: &str) -> u8 {
    share.strip_suffix('%').and_then(|number| number.parse().ok()).unwrap_or(0).min(100)
}

impl JsonSchema for Pods {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Pods".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        int_or_percent(1, "^([1-9][0-9]?|100)%$")
    }
}

/// How many harmed pods are no reason to go back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MaxHarmed {
    /// So many pods.
    Count(u32),
    /// Such as `5%` of the pods that the new version is assigned to.
    Share(String),
}

impl MaxHarmed {
    /// How many of so many pods that are.
    pub fn of(&self, assigned: u64) -> u64 {
        match self {
            Self::Count(count) => u64::from(*count),
            Self::Share(share) => assigned * u64::from(percent(share)) / 100,
        }
    }
}

impl JsonSchema for MaxHarmed {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "MaxHarmed".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        int_or_percent(0, "^([0-9]|[1-9][0-9]|100)%$")
    }
}

/// As every `IntOrString` of Kubernetes; the pattern is checked for strings only.
fn int_or_percent(minimum: u32, pattern: &str) -> schemars::Schema {
    schemars::json_schema!({
        "x-kubernetes-int-or-string": true,
        "minimum": minimum,
        "maximum": 2_147_483_647,
        "pattern": pattern
    })
}

/// What a failed rollout leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnFailure {
    /// Every pod returns to the previous version.
    #[default]
    Rollback,
    /// The rollout stops where it is.
    Hold,
}

/// What happens to workloads that use the published ConfigMap or Secret without an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AgentlessPolicy {
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
        assert_eq!(empty.rollout.steps.len(), 4);
        assert!(empty.publishes(PartKind::ConfigMap) && !empty.publishes(PartKind::Secret));
    }

    #[test]
    fn a_share_of_pods_is_rounded_up_and_one_of_harmed_pods_down() {
        let pods = |text: &str, all| serde_json::from_str::<Pods>(text).unwrap().of(all);
        assert_eq!([pods("\"25%\"", 8), pods("\"25%\"", 9), pods("\"1%\"", 8), pods("\"100%\"", 8)], [2, 3, 1, 8]);
        assert_eq!([pods("3", 8), pods("3", 2), pods("3", 0), pods("\"25%\"", 0)], [3, 2, 0, 0]);
        let harmed = |text: &str, all| serde_json::from_str::<MaxHarmed>(text).unwrap().of(all);
        assert_eq!([harmed("0", 8), harmed("2", 8), harmed("\"5%\"", 39), harmed("\"5%\"", 40)], [0, 2, 1, 2]);
    }

    #[test]
    fn all_service_accounts_are_allowed_or_those_that_are_listed() {
        let admits =
            |spec: &str, account: &str| serde_json::from_str::<VersionedConfigSpec>(spec).unwrap().admits(account);
        assert!(admits("{}", "any"));
        let some = r#"{"allowedServiceAccounts":["shop","worker"]}"#;
        assert!(admits(some, "worker"));
        for other in ["default", "work", "workers", ""] {
            assert!(!admits(some, other), "{other}");
        }
        assert!(
            admits(r#"{"allowedServiceAccounts":["default"]}"#, ""),
            "a pod that names none has the default account"
        );
        assert!(!admits(r#"{"allowedServiceAccounts":[]}"#, "shop"), "an empty list admits nobody");
    }
}
