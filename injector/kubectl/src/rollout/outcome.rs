//! The state of a rollout as `--wait` shows it, from the status of the config.

use nudge_api::{
    ConditionType, ConfigState, Reason, RolloutStage, VersionedConfig, VersionedConfigStatus, find_condition,
};
use nudge_core::requester::noted_retry_time;
use nudge_protocol::plural::counted;

use super::PodCount;
use crate::output::progress::ProgressView;

/// The state of the rollout to a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RolloutOutcome {
    /// The rollout is not finished, or has not begun.
    Pending(ProgressView),
    /// The version is current.
    Current,
    /// The rollout failed, with a message.
    Failed(String),
}

/// Returns the state of the rollout. `generation` is the generation of the spec that names the version. `pods` is
/// absent without the right to list pods.
pub(crate) fn outcome(
    config: &VersionedConfig,
    version: &str,
    generation: i64,
    pods: Option<PodCount>,
) -> RolloutOutcome {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let empty = VersionedConfigStatus::default();
    let status = config.status.as_ref().unwrap_or(&empty);
    if let Some(other) = config.spec.version.as_deref().filter(|other| *other != version) {
        return RolloutOutcome::Failed(format!("config {name}: spec.version was changed to {other} meanwhile"));
    }
    if config.spec.version.is_none() && !config.spec.follows_text() {
        return RolloutOutcome::Failed(format!("config {name}: spec.version was removed meanwhile"));
    }
    let failure = status.rollout.failure.as_ref().filter(|failure| failure.version == version);
    let is_retried =
        failure.is_some_and(|failure| noted_retry_time(config).is_some_and(|retry| failure.retry_time != Some(retry)));
    let other_text = config.requested_version().filter(|other| config.spec.follows_text() && *other != version);
    if let Some(other) = other_text {
        // The failure itself may be why the text was put back.
        let failure = failure.filter(|_| !is_retried);
        let failure =
            failure.map(|failure| format!("version {version} failed ({}): {}; ", failure.reason, failure.message));
        return RolloutOutcome::Failed(format!(
            "config {name}: {}its text is version {other} now, so pods do not move to {version} any more",
            failure.unwrap_or_default()
        ));
    }
    if status.observed_generation.unwrap_or_default() < generation || is_retried {
        let line = "waiting for the control plane".to_owned();
        return RolloutOutcome::Pending(ProgressView { done: 0, total: status.pods.total, line, is_passing: true });
    }
    if status.current_version.as_deref() == Some(version) && status.state() == ConfigState::Current {
        return RolloutOutcome::Current;
    }
    if let Some(failure) = failure.filter(|_| status.state() == ConfigState::Failed) {
        let current = status.current_version.as_deref().unwrap_or("nothing");
        return RolloutOutcome::Failed(format!(
            "config {name}: version {version} failed and {current} runs again ({}): {}",
            failure.reason, failure.message
        ));
    }
    let condition = |kind: ConditionType| find_condition(&status.conditions, kind);
    let stalled = condition(ConditionType::Stalled).filter(|stalled| stalled.status == "True");
    match stalled.map(|stalled| (Reason::named(&stalled.reason), &stalled.message)) {
        Some((Reason::Failed, message)) => {
            return RolloutOutcome::Failed(format!("config {name}: version {version} failed: {message}"));
        }
        Some((Reason::VersionNotAuthorized, message)) => {
            return RolloutOutcome::Failed(format!("config {name}: {message}"));
        }
        _ => {}
    }
    let ready = condition(ConditionType::Ready).filter(|ready| ready.status != "True");
    let cause = ready.and_then(|ready| match Reason::named(&ready.reason) {
        // The line says the same as the messages of these reasons.
        Reason::Progressing | Reason::Baking | Reason::Publishing | Reason::RollingBack | Reason::Leaving => None,
        _ => Some(ready.message.clone()),
    });
    let bake = config.spec.rollout.bake_seconds;
    RolloutOutcome::Pending(view(status, version, bake, pods, cause.as_deref()))
}

fn view(
    status: &VersionedConfigStatus,
    version: &str,
    bake: u32,
    pods: Option<PodCount>,
    cause: Option<&str>,
) -> ProgressView {
    let stage = status.rollout.stage;
    let total = pods.map_or(status.pods.total, |pods| pods.total);
    let target = status.target_version.as_deref().unwrap_or_default();
    let is_return = status.current_version.as_deref() == Some(version);
    let mut line = match stage {
        None => format!("the rollout of version {version} has not begun"),
        Some(RolloutStage::Moving) => format!("moving to version {version}"),
        Some(RolloutStage::Baking) => {
            format!("all pods run version {version}, and are watched for {bake} s before it is current")
        }
        Some(RolloutStage::Restarting) => format!("version {version} is proven"),
        Some(RolloutStage::Leaving | RolloutStage::Returning) if is_return => {
            format!("moving all pods back from version {target} to {version}")
        }
        Some(RolloutStage::Leaving | RolloutStage::Returning) => {
            format!("moving pods away from version {target} first")
        }
        Some(RolloutStage::RollingBack) => format!("rolling back from version {version}"),
    };
    let is_moving = stage == Some(RolloutStage::Moving);
    if let Some(pods) = pods.filter(|_| is_moving) {
        line = format!("{line}: assigned to {} of {}", pods.assigned, counted(total, "pod"));
    }
    let failure = status.rollout.failure.as_ref().filter(|_| stage == Some(RolloutStage::RollingBack));
    if let Some(failure) = failure {
        line = format!("{line}: {}", failure.message);
    }
    let not_waited_for = status.rollout.evidence.as_ref().map_or(0, |evidence| evidence.not_waited_for);
    if is_moving && not_waited_for > 0 {
        line = format!("{line}, {not_waited_for} not waited for");
    }
    if let Some(cause) = cause {
        line = if stage.is_none() { cause.to_owned() } else { format!("{line}; {cause}") };
    }
    let done = match (stage, pods) {
        (Some(RolloutStage::Leaving | RolloutStage::Returning | RolloutStage::RollingBack), Some(pods)) => {
            total.saturating_sub(pods.running)
        }
        (_, Some(pods)) => pods.running,
        (_, None) => status.pods.on_target,
    };
    let is_passing = stage.is_none()
        || stage == Some(RolloutStage::Restarting)
        || is_moving && pods.is_some_and(|pods| pods.assigned == 0 && total > 0);
    ProgressView { done, total, line, is_passing: cause.is_none() && is_passing }
}

#[cfg(test)]
mod tests {
    use nudge_protocol::labels::RETRY;
    use serde_json::{Value, json};

    use super::*;

    fn config(version: &str, status: &Value) -> VersionedConfig {
        serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop", "generation": 3},
            "spec": {"version": version}, "status": status,
        }))
        .unwrap()
    }

    fn ready(status: &str, reason: &str) -> Value {
        json!([{"type": "Ready", "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}])
    }

    fn outcome_of(status: &Value) -> RolloutOutcome {
        outcome(&config("2", status), "2", 3, None)
    }

    #[test]
    fn an_old_status_is_ignored() {
        let outcome_at = |generation: i64| {
            let conditions = ready("True", "Current");
            outcome_of(&json!({"observedGeneration": generation, "currentVersion": "2", "conditions": conditions}))
        };
        let old = outcome_at(2);
        assert!(
            matches!(old, RolloutOutcome::Pending(view) if view.is_passing && view.line.contains("waiting for the control plane"))
        );
        assert_eq!(outcome_at(3), RolloutOutcome::Current);
    }

    #[test]
    fn a_failure_from_before_a_retry_is_none() {
        let failed = |retry: &Value| {
            let failure = json!({"version": "2", "digest": "sha256:0", "retryTime": retry, "reason": "PodNotReady",
                "message": "m"});
            let status = json!({"observedGeneration": 3, "currentVersion": "1", "rollout": {"failure": failure},
                "conditions": ready("False", "Failed")});
            let mut config = config("2", &status);
            config.metadata.annotations = Some([(RETRY.to_owned(), "2026-11-26T10:00:00Z x= joe".to_owned())].into());
            matches!(outcome(&config, "2", 3, None), RolloutOutcome::Failed(_))
        };
        assert!(
            !failed(&Value::Null) && !failed(&json!("2026-11-26T09:00:00Z")) && failed(&json!("2026-11-26T10:00:00Z"))
        );
    }

    #[test]
    fn a_rollout_fails_once_all_pods_are_back() {
        let failure =
            json!({"version": "2", "digest": "sha256:0", "reason": "PodNotReady", "message": "pod web-1 was Ready"});
        let outcome_in = |reason: &str, stage: Value| {
            outcome_of(&json!({"observedGeneration": 3, "currentVersion": "1", "targetVersion": "2",
                        "conditions": ready("False", reason),
                        "rollout": {"failure": failure, "stage": stage}}))
        };
        let RolloutOutcome::Pending(view) = outcome_in("RollingBack", json!("RollingBack")) else {
            panic!("the rollout ended")
        };
        assert_eq!(view.line, "rolling back from version 2: pod web-1 was Ready");
        assert_eq!(
            outcome_in("Failed", Value::Null),
            RolloutOutcome::Failed(
                "config shop: version 2 failed and 1 runs again (PodNotReady): pod web-1 was Ready".into()
            )
        );
        let stalled = json!([{"type": "Stalled", "status": "True", "reason": "Failed", "message": "pod web-1", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let held = outcome_of(&json!({"observedGeneration": 3, "currentVersion": "1", "conditions": stalled}));
        assert_eq!(held, RolloutOutcome::Failed("config shop: version 2 failed: pod web-1".into()));
    }

    #[test]
    fn another_version_in_the_spec_ends_the_wait() {
        let other = outcome(&config("7", &json!({"observedGeneration": 4})), "2", 3, None);
        assert_eq!(other, RolloutOutcome::Failed("config shop: spec.version was changed to 7 meanwhile".into()));
    }

    #[test]
    fn another_text_ends_the_wait() {
        let mut config =
            config("2", &json!({"internal": {"text": {"version": "7", "settleTime": "2026-01-01T00:00:00Z"}}}));
        config.spec.version = None;
        config.spec.objects = vec![nudge_api::PartKind::ConfigMap];
        let message = "its text is version 7 now, so pods do not move to 2 any more";
        assert_eq!(outcome(&config, "2", 3, None), RolloutOutcome::Failed(format!("config shop: {message}")));
        assert!(matches!(outcome(&config, "7", 3, None), RolloutOutcome::Pending(_)));
        let failure = json!({"version": "2", "digest": "sha256:0", "reason": "PodNotReady", "message": "pod web-1"});
        config.status.as_mut().unwrap().rollout.failure = Some(serde_json::from_value(failure).unwrap());
        let failed = format!("config shop: version 2 failed (PodNotReady): pod web-1; {message}");
        assert_eq!(outcome(&config, "2", 3, None), RolloutOutcome::Failed(failed));
        config.spec.objects.clear();
        let removed = "config shop: spec.version was removed meanwhile".to_owned();
        assert_eq!(outcome(&config, "2", 3, None), RolloutOutcome::Failed(removed));
    }

    #[test]
    fn the_line_has_the_progress_and_what_holds_it_up() {
        let status = |stage: &str, reason: &str, message: &str| {
            json!({
                "observedGeneration": 3, "currentVersion": "1", "targetVersion": "2",
                "pods": {"total": 40, "onTarget": 38, "summary": "38/40"},
                "rollout": {"stage": stage, "evidence": {"notWaitedFor": 1}, "failure": {"version": "2", "digest": "sha256:0", "reason": "x", "message": "it is ill"}},
                "conditions": [{"type": "Ready", "status": "False", "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            })
        };
        let count = |assigned, running| Some(PodCount { assigned, running, total: 40 });
        let view = |status: &Value, pods| match outcome(&config("2", status), "2", 3, pods) {
            RolloutOutcome::Pending(view) => view,
            ended => panic!("{ended:?}"),
        };
        let held = status("Moving", "OnHold", "it is on hold");
        let held = view(&held, count(10, 4));
        assert_eq!((held.done, held.total, held.is_passing), (4, 40, false));
        assert_eq!(held.line, "moving to version 2: assigned to 10 of 40 pods, 1 not waited for; it is on hold");
        let moving = status("Moving", "Progressing", "moving to version 2");
        assert_eq!(
            view(&moving, count(10, 4)).line,
            "moving to version 2: assigned to 10 of 40 pods, 1 not waited for"
        );
        assert!(view(&moving, count(0, 0)).is_passing && !view(&moving, count(1, 0)).is_passing);
        assert_eq!(view(&moving, None).line, "moving to version 2, 1 not waited for");
        let back = view(&status("RollingBack", "RollingBack", "x"), count(0, 3));
        assert_eq!((back.done, back.line.as_str()), (37, "rolling back from version 2: it is ill"));
    }
}
