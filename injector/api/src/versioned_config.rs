//! `VersionedConfig`: the version of a config that the user wants, and the way in which pods are moved to it.

use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::governance::{Analysis, Approval, Hold, Window};
use super::immediate_override::Override;
use super::pod_share::{Pods, none_or_more};
use super::status::{PartKind, VersionedConfigStatus};
use super::step_selector::StepSelector;
use super::validation::ValidationRule;

/// Version of the config that pods should run, and the way in which they are moved to it. A version is up to 16
/// immutable ConfigMaps and Secrets of the namespace with the labels nudge.dev/config and nudge.dev/version.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "nudge.dev",
    version = "v1alpha1",
    kind = "VersionedConfig",
    namespaced,
    shortname = "vcfg",
    category = "nudge",
    doc = "VersionedConfig is a named set of keys and values with versions: which of them pods should run, which is proven, and how pods are moved.",
    status = "VersionedConfigStatus",
    derive = "Default",
    crates(kube_core = "::kube_core"),
    derive = "PartialEq",
    printcolumn = r#"{"name":"Desired","type":"string","jsonPath":".status.desiredVersion","description":"The requested version."}"#,
    printcolumn = r#"{"name":"Current","type":"string","jsonPath":".status.currentVersion","description":"The version that has passed its steps and its bake."}"#,
    printcolumn = r#"{"name":"On-Target","type":"string","jsonPath":".status.pods.summary","description":"Pods that run the target, or the current version at rest, of all that use the config."}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status","description":"The desired version is current."}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason","description":"Why the desired version is current, or why not."}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Message","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type=='Ready')].message","description":"The reason in words."}"#
)]
#[serde(rename_all = "camelCase")]
pub struct VersionedConfigSpec {
    /// Name of the version that pods should run, such as 1.4.0. It may name a version that does not exist yet: nothing
    /// moves until the version is complete. When absent, the text of the objects in spec.objects is what pods should
    /// get; without objects, the first complete version becomes current and stays current.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$"))]
    pub version: Option<String>,

    /// The way in which pods are moved from one version to another.
    #[serde(default)]
    pub rollout: RolloutSpec,

    /// Objects of the config's name that belong to the config: `ConfigMap`, `Secret`. While spec.version is absent,
    /// Nudge reads them and does not write them: each change of their text is a version that pods should run. While
    /// spec.version is set, Nudge writes the current version to them, for workloads without an agent. It creates the
    /// Secret, with the type of the version's Secrets, but no ConfigMap. When empty, Nudge neither reads nor writes
    /// them, and restarts no workload without an agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2), extend("x-kubernetes-list-type" = "set"))]
    pub objects: Vec<PartKind>,

    /// Treatment of workloads that use the published ConfigMap or Secret without an agent: `Restart` restarts them
    /// for each version, one after another, by their own rolling update; `Ignore` leaves them alone. Defaults to
    /// Restart.
    #[serde(default)]
    pub agentless_policy: AgentlessPolicy,

    /// Names of the service accounts of this namespace whose pods may get the config, 1 to 64. When absent, every pod
    /// of the namespace may get it. The list does not hide the config from users who may read the ConfigMaps of the
    /// namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 64),
        inner(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub allowed_service_accounts: Option<Vec<String>>,

    /// Number of versions made by `kubectl nudge` that are kept beside those in use, from 0 to 40. Defaults to 10.
    /// Older ones are deleted. Versions made in other ways are never deleted.
    #[serde(default = "default_history_limit")]
    #[schemars(range(min = 0, max = 40))]
    pub history_limit: u32,

    /// Rules for the content of a version, at most 32. A version that breaks a rule is never sealed, so no pod gets it.
    /// Versions that are sealed already are not judged again when the rules change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub validation: Vec<ValidationRule>,
}

impl VersionedConfigSpec {
    /// Returns whether pods of this service account may get the config. A pod that names none has the account
    /// `default`.
    pub fn admits(&self, service_account: &str) -> bool {
        let name = if service_account.is_empty() { "default" } else { service_account };
        self.allowed_service_accounts.as_ref().is_none_or(|allowed| allowed.iter().any(|account| account == name))
    }

    /// Returns whether the object of this kind and the config's name belongs to the config.
    pub fn owns(&self, kind: PartKind) -> bool {
        self.objects.contains(&kind)
    }

    /// Returns whether the text of the config's objects is what pods should get.
    pub fn follows_text(&self) -> bool {
        self.version.is_none() && !self.objects.is_empty()
    }
}

impl VersionedConfig {
    /// Returns the requested version: `spec.version`, or that of the text of the config's objects.
    pub fn requested_version(&self) -> Option<&str> {
        let text = || {
            let status = self.status.as_ref().filter(|_| self.spec.follows_text())?;
            Some(status.internal.text.as_ref()?.version.as_str())
        };
        self.spec.version.as_deref().or_else(text)
    }
}

fn default_history_limit() -> u32 {
    10
}

impl Default for VersionedConfigSpec {
    /// Returns what the API server makes of an empty spec. (A derived default would keep no history at all.)
    fn default() -> Self {
        Self {
            version: None,
            rollout: RolloutSpec::default(),
            objects: Vec::new(),
            agentless_policy: AgentlessPolicy::default(),
            allowed_service_accounts: None,
            history_limit: default_history_limit(),
            validation: Vec::new(),
        }
    }
}

/// The way in which pods are moved to another version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutSpec {
    /// Number of pods that have the new version after each step, 1 to 32 steps. After the last one all pods follow,
    /// whether a step says so or not. Defaults to 1 pod, 25%, 50% and 100%.
    #[schemars(length(min = 1, max = 32))]
    pub steps: Vec<Step>,
    /// Number of seconds for which every pod of a step must be Ready with the new version before the next step, from 0
    /// to 86400. Defaults to 10. Nudge waits for longer where the readiness and liveness probes of these pods need
    /// longer to notice a change: after the first step for as long as they need, after the others up to 300 seconds.
    #[schemars(range(min = 0, max = 86400))]
    pub min_ready_seconds: u32,
    /// Number of seconds for which all pods run the new version before it is published and becomes current, from 0 to
    /// 604800. Defaults to 60.
    #[schemars(range(min = 0, max = 604_800))]
    pub bake_seconds: u32,
    /// Number of seconds within which the containers of a pod must acknowledge a new version, from 1 to 86400. Defaults
    /// to 30. After that the pod counts as silent.
    #[schemars(range(min = 1, max = 86400))]
    pub ack_timeout_seconds: u32,
    /// Number of seconds for which a rollout may make no progress before it fails, from 1 to 604800. Defaults to 600.
    /// Time in which pods are only watched, a hold, a window or an approval is waited for, or the hub is away, does not
    /// count.
    #[schemars(range(min = 1, max = 604_800))]
    pub progress_deadline_seconds: u32,
    /// Number of the pods with the new version that may be harmed before the version fails: a number, such as 2, or a
    /// share from 0% to 100%, rounded down. When absent, Nudge weighs them against the pods without the version, and
    /// against how often pods of the config are harmed without cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "none_or_more")]
    pub max_harmed: Option<Pods>,
    /// Reaction to a failure of the new version: `Rollback` returns every pod to the current version; `Hold` leaves
    /// pods as they are until somebody acts. Defaults to Rollback.
    pub on_failure: OnFailure,
    /// Number of seconds over which the notifications of Ready pods are spread on the way back, from 0 to 600. Other
    /// pods are notified at once. When absent, 0; for pods that restart in place, 2 for each pod of the config, up to
    /// 30.
    #[schemars(range(min = 0, max = 600))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollback_spread_seconds: Option<u32>,
    /// Assigns a version to all pods at once: without steps, and without waiting for a hold, a window or an approval.
    /// It has an effect until untilTime, while its version is spec.version. To set it, a user needs the verb `override`
    /// on the config.
    #[serde(rename = "override", skip_serializing_if = "Option::is_none")]
    pub overridden: Option<Override>,
    /// Approvals that a version needs before any pod gets it. When absent, no approval is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// Times of the week in which versions may continue, at most 16. Outside of all of them no step goes out and
    /// nothing is published; a bad version is rolled back all the same. When empty, versions may continue at any time.
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<Window>,
    /// Lets no version begin or continue, whatever the windows say. A bad version is rolled back all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// Queries of Prometheus that judge a version beside the health of its pods, at most 8.
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

/// A step of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Name of the step, unique among the steps, for messages and the status. Nudge finds the step that went out last
    /// by its name, so steps can be added or removed before it. When absent, the step goes by its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: Option<String>,
    /// Number of pods that have the new version after the step, with those of the steps before: a number from 1, or a
    /// share from 1% to 100%, rounded up. It counts all pods of the config or, with a selector, the pods that the
    /// selector matches.
    pub pods: Pods,
    /// The pods that the step is about. A pod counts by the labels that it was created with. At most 8 selectors
    /// differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<StepSelector>,
    /// Number of seconds for which the next step waits in addition to the time for which this one is watched, from 0 to
    /// 604800. Defaults to 0. Without effect on the last step, which the bake follows.
    #[serde(default, skip_serializing_if = "crate::status::is_zero")]
    #[schemars(range(min = 0, max = 604_800))]
    pub pause_seconds: u32,
}

impl Step {
    /// Creates a step of this number or share of the config's pods.
    pub fn of(pods: Pods) -> Self {
        Self { name: None, pods, selector: None, pause_seconds: 0 }
    }
}

fn default_steps() -> Vec<Step> {
    let share = |share: &str| Step::of(Pods::Share(share.to_owned()));
    vec![Step::of(Pods::Count(1)), share("25%"), share("50%"), share("100%")]
}

/// The reaction to a failure of a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnFailure {
    /// Every pod returns to the current version.
    #[default]
    Rollback,
    /// The rollout stops where it is.
    Hold,
}

/// The treatment of workloads that use the published ConfigMap or Secret without an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AgentlessPolicy {
    /// The workloads are restarted, one after another, by their own rolling update.
    #[default]
    Restart,
    /// The workloads are left alone.
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
        assert!(empty.objects.is_empty(), "Nudge writes no object that nobody requested");
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
