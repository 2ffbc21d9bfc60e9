//! The row of a config in the overview.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use nudge_api::{
    ConditionType, ConfigState, Reason, RolloutStage, VersionedConfig, VersionedConfigStatus, find_condition,
};
use serde::Serialize;

use crate::output::rollout_report::{StepProgress, step_progress};

/// The conditions that are good news when they are true.
const GOOD: [ConditionType; 6] = [
    ConditionType::Ready,
    ConditionType::Published,
    ConditionType::SecretPublished,
    ConditionType::Restarted,
    ConditionType::Fetched,
    ConditionType::Valid,
];

/// The attention that a config needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Attention {
    /// The config is as the spec says.
    None,
    /// Something is under way that needs nobody.
    Moving,
    /// Something is not as it should be.
    Look,
    /// Nothing continues until somebody acts.
    Act,
}

/// The summary of a config.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConfigRow {
    pub(crate) namespace: String,
    pub(crate) config: String,
    pub(crate) state: &'static str,
    pub(crate) stage: Option<RolloutStage>,
    pub(crate) on_hold: bool,
    pub(crate) attention: Attention,
    pub(crate) current: Option<String>,
    pub(crate) desired: Option<String>,
    pub(crate) target: Option<String>,
    /// The progress of the rollout, if a step went out.
    pub(crate) reached: Option<StepProgress>,
    /// The number of pods that run the target, or the current version if nothing moves.
    pub(crate) on_target: u32,
    /// The number of all pods.
    pub(crate) total: u32,
    /// The number of pods that reported a failure.
    pub(crate) failed: u32,
    /// The time when the rollout began, or of the last change of the status; in seconds since 1970.
    pub(crate) since: Option<i64>,
    /// The reason why the config is not ready, or is suspect.
    pub(crate) reason: Option<String>,
    pub(crate) message: Option<String>,
}

/// Returns how much attention a config needs.
pub(crate) fn attention(config: &VersionedConfig) -> Attention {
    let Some(status) = &config.status else { return Attention::Moving };
    let is_true = |kind| find_condition(&status.conditions, kind).is_some_and(|condition| condition.status == "True");
    let not_ready = find_condition(&status.conditions, ConditionType::Ready).filter(|ready| ready.status != "True");
    let needs_action = not_ready.is_some_and(|ready| Reason::named(&ready.reason).facts().needs_action);
    if is_true(ConditionType::Stalled) || needs_action || status.state() == ConfigState::Failed {
        Attention::Act
    } else if [ConditionType::Conflict, ConditionType::Drifted, ConditionType::Suspect].into_iter().any(is_true)
        || status.state() == ConfigState::RollingBack
        || status.pods.failed > 0
    {
        Attention::Look
    } else if status.state() == ConfigState::Current {
        Attention::None
    } else {
        Attention::Moving
    }
}

/// Returns how much attention a condition of a config needs.
pub(crate) fn attention_to(condition: &Condition) -> Attention {
    let is_kind = |kind: ConditionType| condition.type_ == kind.as_str();
    if (condition.status == "True") == GOOD.into_iter().any(is_kind) {
        Attention::None
    } else if is_kind(ConditionType::Stalled)
        || is_kind(ConditionType::Ready) && Reason::named(&condition.reason).facts().needs_action
    {
        Attention::Act
    } else if is_kind(ConditionType::Reconciling) || is_kind(ConditionType::Ready) {
        Attention::Moving
    } else {
        Attention::Look
    }
}

impl ConfigRow {
    pub(crate) fn new(config: &VersionedConfig) -> Self {
        let empty = VersionedConfigStatus::default();
        let status = config.status.as_ref().unwrap_or(&empty);
        let find = |kind, is_true| {
            find_condition(&status.conditions, kind).filter(|condition| (condition.status == "True") == is_true)
        };
        let notable = find(ConditionType::Ready, false).or_else(|| find(ConditionType::Suspect, true));
        let changed = status.conditions.iter().map(|condition| condition.last_transition_time.0.as_second()).max();
        let began = status.rollout.start_time.as_ref().map(|began| began.0.as_second());
        let created = config.metadata.creation_timestamp.as_ref().map(|created| created.0.as_second());
        Self {
            namespace: config.metadata.namespace.clone().unwrap_or_default(),
            config: config.metadata.name.clone().unwrap_or_default(),
            state: status.state().as_str(),
            stage: status.rollout.stage,
            on_hold: config.spec.rollout.hold.is_some(),
            attention: attention(config),
            reason: notable.map(|condition| condition.reason.clone()),
            message: notable.map(|condition| condition.message.clone()),
            since: began.or(changed).or(created),
            desired: config.requested_version().map(str::to_owned),
            reached: step_progress(config),
            on_target: status.pods.on_target,
            total: status.pods.total,
            failed: status.pods.failed,
            current: status.current_version.clone(),
            target: status.target_version.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn config(status: &Value) -> VersionedConfig {
        serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig",
            "metadata": {"name": "shop", "namespace": "team", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"version": "2"}, "status": status,
        }))
        .unwrap()
    }

    fn condition(kind: &str, status: &str, reason: &str) -> Value {
        json!({"type": kind, "status": status, "reason": reason, "message": "why", "lastTransitionTime": "2026-01-02T00:00:00Z"})
    }

    #[test]
    fn what_waits_for_somebody_comes_before_what_moves() {
        let attention_of = |stage: Option<&str>, conditions: &[Value]| {
            attention(&config(&json!({"rollout": {"stage": stage}, "conditions": conditions})))
        };
        let ready = || condition("Ready", "True", "Current");
        assert_eq!(attention_of(None, &[ready()]), Attention::None);
        assert_eq!(attention_of(Some("Moving"), &[condition("Ready", "False", "Progressing")]), Attention::Moving);
        assert_eq!(attention_of(Some("Returning"), &[condition("Ready", "False", "RollingBack")]), Attention::Look);
        assert_eq!(attention_of(None, &[ready(), condition("Suspect", "True", "Suspect")]), Attention::Look);
        assert_eq!(attention_of(None, &[ready(), condition("Drifted", "True", "Drifted")]), Attention::Look);
        assert_eq!(attention_of(Some("Moving"), &[condition("Stalled", "True", "NobodyToJudge")]), Attention::Act);
        assert_eq!(attention_of(Some("Moving"), &[condition("Ready", "False", "OnHold")]), Attention::Act);
        assert_eq!(attention_of(None, &[condition("Ready", "False", "OutsideWindow")]), Attention::Moving);
        assert_eq!(attention_of(None, &[condition("Ready", "False", "Failed")]), Attention::Act);
    }

    #[test]
    fn a_condition_needs_attention_by_what_it_says() {
        let attention_of =
            |kind, status, reason| attention_to(&serde_json::from_value(condition(kind, status, reason)).unwrap());
        assert_eq!(attention_of("Ready", "True", "Current"), Attention::None);
        assert_eq!(attention_of("Stalled", "False", "Progressing"), Attention::None);
        assert_eq!(attention_of("Ready", "False", "Progressing"), Attention::Moving);
        assert_eq!(attention_of("Reconciling", "True", "Progressing"), Attention::Moving);
        assert_eq!(attention_of("Suspect", "True", "Suspect"), Attention::Look);
        assert_eq!(attention_of("Stalled", "True", "NobodyToJudge"), Attention::Act);
        // Whatever holds a version says so by a reason that somebody has to act on, or not.
        assert_eq!(attention_of("Ready", "False", "AwaitingApproval"), Attention::Act);
        assert_eq!(attention_of("Ready", "False", "OutsideWindow"), Attention::Moving);
        assert_eq!(attention_of("NotKnownYet", "True", "NorIsThis"), Attention::Look);
    }

    #[test]
    fn a_row_says_why_and_since_when() {
        let row = ConfigRow::new(&config(&json!({"currentVersion": "1", "targetVersion": "2",
            "pods": {"total": 8, "onTarget": 3}, "conditions": [condition("Ready", "False", "Progressing")]})));
        let expected = (Some("1".to_owned()), Some("2".to_owned()), 3, 8, Some("why".to_owned()));
        assert_eq!((row.current, row.target, row.on_target, row.total, row.message), expected);
        assert_eq!(row.since, Some(1_767_312_000));
        let new: VersionedConfig = serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "new"}, "spec": {}}))
        .unwrap();
        assert_eq!((ConfigRow::new(&new).state, attention(&new)), ("Waiting", Attention::Moving));
    }
}
