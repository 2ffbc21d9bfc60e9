//! Metrics of configs, counted when `/metrics` is read. Every replica has the same values. No label holds a name that
//! users choose.

use nudge_api::{ConditionType, ConfigState, Reason, find_condition};
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
        let (mut states, mut troubles, mut withheld, mut pods) =
            ([0; STATES.len()], [0; TROUBLES.len()], [0; WITHHELD.len()], [0_i64; 5]);
        for status in index.configs().iter().filter_map(|key| index.config(key)?.status.clone()) {
            for (state, count) in STATES.iter().zip(&mut states) {
                *count += i64::from(*state == status.state());
            }
            for ((kind, bad), count) in TROUBLES.iter().zip(&mut troubles) {
                *count += i64::from(
                    find_condition(&status.conditions, *kind).is_some_and(|condition| condition.status == *bad),
                );
            }
            let ready = find_condition(&status.conditions, ConditionType::Ready);
            for (reason, count) in WITHHELD.iter().zip(&mut withheld) {
                *count += i64::from(ready.is_some_and(|ready| ready.reason == reason.as_str()));
            }
            let counts = &status.pods;
            let left = status.rollout.evidence.as_ref().map_or(0, |evidence| evidence.not_waited_for);
            let counts = [counts.total, counts.on_target, counts.ready, counts.failed, left];
            pods.iter_mut().zip(counts).for_each(|(sum, count)| *sum += i64::from(count));
        }
        for (state, count) in STATES.iter().zip(states) {
            self.states.get_or_create(&[("state", state.as_str())]).set(count);
        }
        for ((kind, _), count) in TROUBLES.iter().zip(troubles) {
            self.troubles.get_or_create(&[("condition", kind.as_str())]).set(count);
        }
        for (reason, count) in WITHHELD.iter().zip(withheld) {
            self.withheld.get_or_create(&[("reason", reason.as_str())]).set(count);
        }
        for (state, count) in ["total", "on_target", "ready", "failed", "not_waited_for"].into_iter().zip(pods) {
            self.pods.get_or_create(&[("state", state)]).set(count);
        }
    }
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
