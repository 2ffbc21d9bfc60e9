//! How the move to a version stands, for whoever waits for it. Pure.

use crate::api::{ConditionType, Phase, RolloutStage, VersionedConfig, VersionedConfigStatus};

/// How it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is on, or has not begun.
    On(View),
    /// The version is current.
    Current,
    /// It has failed: a sentence.
    Failed(String),
}

/// What is shown of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    /// Pods that run what they are told.
    pub(super) updated: u32,
    /// All of them.
    pub(super) total: u32,
    /// A line without numbers that change all the time.
    pub(super) line: String,
}

/// Judges the config's state; `generation` is that of the spec that asked for the version.
pub(super) fn outcome(config: &VersionedConfig, version: &str, generation: i64) -> Outcome {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let none = VersionedConfigStatus::default();
    let status = config.status.as_ref().unwrap_or(&none);
    if let Some(other) = config.spec.current.as_deref().filter(|other| *other != version) {
        return Outcome::Failed(format!("config {name}: somebody has set spec.current to {other} meanwhile"));
    }
    if status.observed_generation.unwrap_or_default() < generation {
        let line = "waiting for the control plane to see it".to_owned();
        return Outcome::On(View { line, updated: status.pods.updated, total: status.pods.total });
    }
    if status.current.as_deref() == Some(version) && status.phase == Phase::Current {
        return Outcome::Current;
    }
    let failure = status.rollout.failure.as_ref().filter(|failure| failure.version == version);
    if let Some(failure) = failure.filter(|_| status.phase == Phase::Failed) {
        let current = status.current.as_deref().unwrap_or("nothing");
        return Outcome::Failed(format!(
            "config {name}: version {version} failed and {current} runs again ({}): {}",
            failure.reason, failure.message
        ));
    }
    let condition = |kind: ConditionType| status.conditions.iter().find(|condition| condition.type_ == kind.as_str());
    if let Some(stalled) = condition(ConditionType::Stalled).filter(|it| it.status == "True" && it.reason == "Failed") {
        return Outcome::Failed(format!("config {name}: version {version} failed: {}", stalled.message));
    }
    let why = condition(ConditionType::Ready)
        .filter(|ready| ready.status != "True")
        .map_or("", |ready| ready.message.as_str());
    Outcome::On(View { updated: status.pods.updated, total: status.pods.total, line: line(status, version, why) })
}

fn line(status: &VersionedConfigStatus, version: &str, why: &str) -> String {
    let mut line = match status.rollout.stage {
        None => format!("{}: version {version}", status.phase.as_str()),
        Some(RolloutStage::Moving) => format!("moving to version {version}"),
        Some(RolloutStage::Baking) => format!("all run version {version}, watched"),
        Some(RolloutStage::Recycling) => format!("version {version} is published, workloads without an agent restart"),
        Some(RolloutStage::Leaving) => "leaving the version before".to_owned(),
        Some(RolloutStage::RollingBack) => format!("rolling back from version {version}"),
    };
    let told: Vec<String> = status
        .rollout
        .groups
        .iter()
        .map(|group| {
            let name = if group.workload.is_empty() { "bare pods" } else { &group.workload };
            // The numbers have 32 bits.
            format!("{name} {} %", (group.threshold.min(1 << 32) * 100) >> 32)
        })
        .collect();
    if !told.is_empty() && status.rollout.stage == Some(RolloutStage::Moving) {
        line = format!("{line}, told: {}", told.join(", "));
    }
    if status.pods.skipped > 0 {
        line = format!("{line}, {} skipped", status.pods.skipped);
    }
    if !why.is_empty() {
        line = format!("{line}: {why}");
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn config(current: &str, status: &Value) -> VersionedConfig {
        serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop", "generation": 3},
            "spec": {"current": current}, "status": status,
        }))
        .unwrap()
    }

    fn seen(status: &Value) -> Outcome {
        outcome(&config("2", status), "2", 3)
    }

    #[test]
    fn an_old_status_says_nothing() {
        let old = seen(&json!({"observedGeneration": 2, "phase": "Current", "current": "2"}));
        assert!(matches!(old, Outcome::On(view) if view.line.contains("waiting for the control plane")));
        assert_eq!(seen(&json!({"observedGeneration": 3, "phase": "Current", "current": "2"})), Outcome::Current);
    }

    #[test]
    fn a_failure_is_one_only_when_all_are_back() {
        let failure =
            json!({"version": "2", "generation": 3, "reason": "PodNotReady", "message": "pod web-1 was Ready"});
        let of = |phase: &str, stage: Value| {
            seen(&json!({"observedGeneration": 3, "phase": phase, "current": "1", "target": "2",
                        "rollout": {"revision": 1, "failure": failure, "stage": stage}}))
        };
        let Outcome::On(view) = of("RollingBack", json!("RollingBack")) else { panic!("it has ended") };
        assert_eq!(view.line, "rolling back from version 2");
        assert_eq!(
            of("Failed", Value::Null),
            Outcome::Failed("config shop: version 2 failed and 1 runs again (PodNotReady): pod web-1 was Ready".into())
        );
        let stalled = json!([{"type": "Stalled", "status": "True", "reason": "Failed", "message": "pod web-1", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let held =
            seen(&json!({"observedGeneration": 3, "phase": "BeingCurrent", "current": "1", "conditions": stalled}));
        assert_eq!(held, Outcome::Failed("config shop: version 2 failed: pod web-1".into()));
    }

    #[test]
    fn somebody_elses_choice_ends_the_waiting() {
        let other = outcome(&config("7", &json!({"observedGeneration": 4})), "2", 3);
        assert_eq!(other, Outcome::Failed("config shop: somebody has set spec.current to 7 meanwhile".into()));
    }

    #[test]
    fn the_line_says_how_far_it_is_and_why_not_further() {
        let Outcome::On(view) = seen(&json!({
            "observedGeneration": 3, "phase": "BeingCurrent", "current": "1", "target": "2",
            "pods": {"total": 40, "updated": 38, "skipped": 1, "summary": "38/40"},
            "rollout": {"revision": 1, "stage": "Moving", "groups": [{"workload": "Deployment/web", "threshold": 1_073_741_824_u64}]},
            "conditions": [{"type": "Ready", "status": "False", "reason": "Paused", "message": "it is paused", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        })) else {
            panic!("it has ended")
        };
        assert_eq!((view.updated, view.total), (38, 40));
        assert_eq!(view.line, "moving to version 2, told: Deployment/web 25 %, 1 skipped: it is paused");
    }
}
