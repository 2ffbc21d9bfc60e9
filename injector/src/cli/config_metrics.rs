//! Metrics of configs, counted when `/metrics` is read. Every replica has the same values. No label holds a name that
//! users choose.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use nudge_api::{ConditionType, ConfigState, Reason, VersionedConfigStatus, find_condition};
use nudge_cluster::index::Index;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

const STATES: [ConfigState; 5] = [
    ConfigState::Waiting,
    ConfigState::Current,
    ConfigState::Progressing,
    ConfigState::RollingBack,
    ConfigState::Failed,
];
/// The conditions that can need attention, each with the status that does.
const TROUBLES: [(ConditionType, &str); 7] = [
    (ConditionType::Stalled, "True"),
    (ConditionType::Published, "False"),
    (ConditionType::Drifted, "True"),
    (ConditionType::SecretPublished, "False"),
    (ConditionType::Restarted, "False"),
    (ConditionType::Conflict, "True"),
    (ConditionType::Suspect, "True"),
];

/// The reasons why a rollout may wait although its version has not failed.
const WITHHELD: [Reason; 8] = [
    Reason::AwaitingApproval,
    Reason::OutsideWindow,
    Reason::OnHold,
    Reason::HubAway,
    Reason::PoliciesUnknown,
    Reason::InvalidSpec,
    Reason::UnknownTimeZone,
    Reason::AnalysisInconclusive,
];

/// The name and the value of a family's only label.
pub(super) type Label = [(&'static str, &'static str); 1];

#[derive(Clone, Debug, Default)]
pub(super) struct ConfigMetrics {
    states: Family<Label, Gauge>,
    troubles: Family<Label, Gauge>,
    withheld: Family<Label, Gauge>,
    pods: Family<Label, Gauge>,
}

impl ConfigMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("configs", "Configs, by state", self.states.clone());
        let help = "Configs with a condition that needs attention: Published, SecretPublished or Restarted is False, or another one is True";
        registry.register("config_troubles", help, self.troubles.clone());
        let help = "Configs whose version may not continue although nothing is wrong with it, by reason";
        registry.register("configs_withheld", help, self.withheld.clone());
        let help = "Pods that use a config, by state; a pod that uses two configs counts twice";
        registry.register("config_pods", help, self.pods.clone());
    }

    pub(super) fn update(&self, index: &Index) {
        let configs: Vec<_> = index.configs().iter().filter_map(|key| index.config(key)).collect();
        let statuses: Vec<_> = configs.iter().filter_map(|config| config.status.as_ref()).collect();
        for state in STATES {
            let configs = statuses.iter().filter(|status| status.state() == state).count();
            set(&self.states, ("state", state.as_str()), configs);
        }
        for (kind, bad) in TROUBLES {
            let is_bad = |condition: &Condition| condition.status == bad;
            let has_trouble =
                |status: &&&VersionedConfigStatus| find_condition(&status.conditions, kind).is_some_and(is_bad);
            set(&self.troubles, ("condition", kind.as_str()), statuses.iter().filter(has_trouble).count());
        }
        let ready = statuses.iter().filter_map(|status| find_condition(&status.conditions, ConditionType::Ready));
        for reason in WITHHELD {
            let configs = ready.clone().filter(|ready| ready.reason == reason.as_str()).count();
            set(&self.withheld, ("reason", reason.as_str()), configs);
        }
        let sum = |pods: fn(&VersionedConfigStatus) -> u32| statuses.iter().map(|status| pods(status) as usize).sum();
        set(&self.pods, ("state", "total"), sum(|status| status.pods.total));
        set(&self.pods, ("state", "on_target"), sum(|status| status.pods.on_target));
        set(&self.pods, ("state", "ready"), sum(|status| status.pods.ready));
        set(&self.pods, ("state", "failed"), sum(|status| status.pods.failed));
        let left = |status: &VersionedConfigStatus| {
            status.rollout.evidence.as_ref().map_or(0, |evidence| evidence.not_waited_for)
        };
        set(&self.pods, ("state", "not_waited_for"), sum(left));
    }
}

fn set(family: &Family<Label, Gauge>, label: (&'static str, &'static str), count: usize) {
    family.get_or_create(&[label]).set(i64::try_from(count).unwrap_or(i64::MAX));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn configs_are_counted_and_not_named() {
        let (index, metrics, mut registry) = (Index::default(), ConfigMetrics::default(), Registry::default());
        metrics.register(&mut registry);
        index.set_enabled(["secret-space".to_owned()].into());
        let failure = json!({"version": "2", "reason": "PodNotReady", "message": ""});
        for (name, ready, reason) in [
            ("one", "False", "Failed"),
            ("two", "False", "Failed"),
            ("three", "True", "Current"),
            ("four", "False", "OnHold"),
        ] {
            let failure = (reason == "Failed").then_some(&failure);
            let config = json!({
                "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "spec": {},
                "metadata": {"name": name, "namespace": "secret-space", "uid": name, "resourceVersion": "1"},
                "status": {"pods": {"total": 3, "failed": 1}, "rollout": {"failure": failure, "evidence": {"notWaitedFor": 2}}, "conditions": [
                    {"type": "Ready", "status": ready, "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                    {"type": "Restarted", "status": "False", "reason": "Paused", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
            });
            index.put_config(serde_json::from_value(config).unwrap());
        }
        metrics.update(&index);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "configs{state=\"Failed\"} 2",
            "configs{state=\"Current\"} 1",
            "configs{state=\"Waiting\"} 1",
            "configs{state=\"RollingBack\"} 0",
            "config_troubles{condition=\"Restarted\"} 4",
            "configs_withheld{reason=\"OnHold\"} 1",
            "configs_withheld{reason=\"OutsideWindow\"} 0",
            "config_pods{state=\"failed\"} 4",
            "config_pods{state=\"not_waited_for\"} 8",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} in {text}");
        }
        assert!(!text.contains("secret-space") && !text.contains("three"));
    }
}
