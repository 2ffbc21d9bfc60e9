//! How the move to a version stands, for whoever waits for it. Pure.

use nudge_api::{ConditionType, Phase, RolloutStage, VersionedConfig, VersionedConfigStatus};

use super::moved::Moved;

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
    /// Pods that are where they are to be.
    pub(super) done: u32,
    /// All of them.
    pub(super) total: u32,
    /// What is being done, without numbers that change with every pod.
    pub(super) line: String,
    /// It is over in a moment, if all is well: told to whoever watches, and to others only if it lasts.
    pub(super) passing: bool,
}

/// Judges the config's state; `generation` is that of the spec that asked for the version. Of pods nothing is known where they may not
/// be listed.
pub(super) fn outcome(config: &VersionedConfig, version: &str, generation: i64, pods: Option<Moved>) -> Outcome {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let none = VersionedConfigStatus::default();
    let status = config.status.as_ref().unwrap_or(&none);
    if let Some(other) = config.spec.current.as_deref().filter(|other| *other != version) {
        return Outcome::Failed(format!("config {name}: somebody has set spec.current to {other} meanwhile"));
    }
    if status.observed_generation.unwrap_or_default() < generation {
        let line = "waiting for the control plane to see it".to_owned();
        return Outcome::On(View { done: 0, total: status.pods.total, line, passing: true });
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
    let stalled = condition(ConditionType::Stalled).filter(|it| it.status == "True");
    if let Some(stalled) = stalled.filter(|it| it.reason == "Failed") {
        return Outcome::Failed(format!("config {name}: version {version} failed: {}", stalled.message));
    }
    if let Some(stalled) = stalled.filter(|it| it.reason == "VersionNotAuthorized") {
        return Outcome::Failed(format!("config {name}: {}", stalled.message));
    }
    // What the line says already is not said twice.
    let why = condition(ConditionType::Ready)
        .filter(|ready| ready.status != "True")
        .filter(|ready| !["Progressing", "Baking", "Publishing", "RollingBack", "Leaving"].contains(&&*ready.reason));
    let why = why.map(|ready| match &*ready.reason {
        "Paused" => format!("{}, or run kubectl nudge resume {name}", ready.message),
        _ => ready.message.clone(),
    });
    Outcome::On(view(status, version, pods, why.as_deref()))
}

fn view(status: &VersionedConfigStatus, version: &str, pods: Option<Moved>, why: Option<&str>) -> View {
    let stage = status.rollout.stage;
    let total = pods.map_or(status.pods.total, |pods| pods.total);
    let leaves = status.target.as_deref().unwrap_or_default();
    let mut line = match stage {
        None => format!("version {version} is not begun yet"),
        Some(RolloutStage::Moving) => format!("moving to version {version}"),
        Some(RolloutStage::Baking) => format!("all pods run version {version}, which is watched until it is published"),
        Some(RolloutStage::Restarting) => format!("version {version} is published"),
        Some(RolloutStage::Leaving) if status.current.as_deref() == Some(version) => {
            format!("every pod returns from version {leaves} to {version}")
        }
        Some(RolloutStage::Leaving) => format!("leaving version {leaves} first"),
        Some(RolloutStage::RollingBack) => format!("rolling back from version {version}"),
    };
    let moving = stage == Some(RolloutStage::Moving);
    if let Some(pods) = pods.filter(|_| moving) {
        line = format!("{line}: {} of {total} pods told", pods.told);
    }
    let failure = status.rollout.failure.as_ref().filter(|_| stage == Some(RolloutStage::RollingBack));
    if let Some(failure) = failure {
        line = format!("{line}: {}", failure.message);
    }
    if moving && status.pods.skipped > 0 {
        line = format!("{line}, {} skipped", status.pods.skipped);
    }
    if let Some(why) = why {
        line = if stage.is_none() { why.to_owned() } else { format!("{line}; {why}") };
    }
    let done = match (stage, pods) {
        (Some(RolloutStage::Leaving | RolloutStage::RollingBack), Some(pods)) => total.saturating_sub(pods.runs),
        (_, Some(pods)) => pods.runs,
        (_, None) => status.pods.updated,
    };
    let begins = stage.is_none()
        || stage == Some(RolloutStage::Restarting)
        || moving && pods.is_some_and(|pods| pods.told == 0 && total > 0);
    View { done, total, line, passing: why.is_none() && begins }
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
        outcome(&config("2", status), "2", 3, None)
    }

    #[test]
    fn an_old_status_says_nothing() {
        let old = seen(&json!({"observedGeneration": 2, "phase": "Current", "current": "2"}));
        assert!(
            matches!(old, Outcome::On(view) if view.passing && view.line.contains("waiting for the control plane"))
        );
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
        assert_eq!(view.line, "rolling back from version 2: pod web-1 was Ready");
        assert_eq!(
            of("Failed", Value::Null),
            Outcome::Failed("config shop: version 2 failed and 1 runs again (PodNotReady): pod web-1 was Ready".into())
        );
        let stalled = json!([{"type": "Stalled", "status": "True", "reason": "Failed", "message": "pod web-1", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let held =
            seen(&json!({"observedGeneration": 3, "phase": "Progressing", "current": "1", "conditions": stalled}));
        assert_eq!(held, Outcome::Failed("config shop: version 2 failed: pod web-1".into()));
    }

    #[test]
    fn somebody_elses_choice_ends_the_waiting() {
        let other = outcome(&config("7", &json!({"observedGeneration": 4})), "2", 3, None);
        assert_eq!(other, Outcome::Failed("config shop: somebody has set spec.current to 7 meanwhile".into()));
    }

    #[test]
    fn the_line_says_how_far_it_is_and_why_not_further() {
        let status = |stage: &str, reason: &str, message: &str| {
            json!({
                "observedGeneration": 3, "phase": "Progressing", "current": "1", "target": "2",
                "pods": {"total": 40, "updated": 38, "skipped": 1, "summary": "38/40"},
                "rollout": {"revision": 1, "stage": stage, "failure": {"version": "2", "generation": 3, "reason": "x", "message": "it is ill"}},
                "conditions": [{"type": "Ready", "status": "False", "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            })
        };
        let of = |told, runs| Some(Moved { told, runs, total: 40 });
        let view = |status: &Value, pods| match outcome(&config("2", status), "2", 3, pods) {
            Outcome::On(view) => view,
            ended => panic!("{ended:?}"),
        };
        let paused = status("Moving", "Paused", "it is paused");
        let held = view(&paused, of(10, 4));
        assert_eq!((held.done, held.total, held.passing), (4, 40, false));
        assert_eq!(
            held.line,
            "moving to version 2: 10 of 40 pods told, 1 skipped; it is paused, or run kubectl nudge resume shop"
        );
        let moving = status("Moving", "Progressing", "moving to version 2");
        assert_eq!(view(&moving, of(10, 4)).line, "moving to version 2: 10 of 40 pods told, 1 skipped");
        assert!(view(&moving, of(0, 0)).passing && !view(&moving, of(1, 0)).passing);
        assert_eq!(view(&moving, None).line, "moving to version 2, 1 skipped");
        let back = view(&status("RollingBack", "RollingBack", "x"), of(0, 3));
        assert_eq!((back.done, back.line.as_str()), (37, "rolling back from version 2: it is ill"));
    }
}
