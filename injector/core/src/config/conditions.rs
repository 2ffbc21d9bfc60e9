//! The conditions that follow from the decision: `Ready`, `Reconciling`, `Stalled` and `Conflict`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use nudge_api::{
    ConditionType, Explanation, Reason, VersionedConfig, VersionedConfigStatus, clipped, condition, find_condition,
    set_condition,
};

use super::target_version::is_stuck;
use crate::event_record::EventRecord;
use crate::rollout::{Continuation, Rollout};
use crate::versions::{Inventory, SealCheck};

/// The duration of the condition Suspect.
const SUSPECT_PERIOD: SignedDuration = SignedDuration::from_hours(24);

/// The progress of a config: whether it is Ready, or why it waits.
pub(super) struct ConfigProgress {
    /// The reason and the message of the condition Ready.
    explanation: Explanation,
    state: ReadyState,
    /// The fault of the spec that keeps every version from beginning or continuing.
    invalid: Option<Explanation>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadyState {
    Ready,
    Reconciling,
    Stalled,
}

impl ConfigProgress {
    /// Returns the progress of a config whose pods can't be moved to the requested version.
    pub(super) fn impossible(explanation: Explanation) -> Self {
        let state = if is_stuck(explanation.reason) { ReadyState::Stalled } else { ReadyState::Reconciling };
        Self { explanation, state, invalid: None }
    }

    /// Returns the progress of the rollout after its last transition.
    pub(super) fn of(rollout: &Rollout, continuation: &Continuation) -> Self {
        if let Rollout::Current(idle) = rollout {
            let message = format!("version {} is current", idle.base.current);
            return Self { explanation: Reason::Current.explained(message), state: ReadyState::Ready, invalid: None };
        }
        let target = match rollout {
            Rollout::NotBegun { target, .. } => target.as_str(),
            Rollout::Forward(transfer) => &transfer.target,
            Rollout::Back(back) => &back.target,
            _ => "",
        };
        let moving = || Reason::Progressing.explained(format!("moving to version {target}"));
        let explanation = continuation.explanation().cloned().unwrap_or_else(moving);
        let continues_by_itself = explanation.reason == Reason::AnalysisInconclusive;
        let stalled = continuation.is_blocked() && !continues_by_itself && !is_planned(explanation.reason);
        Self { explanation, state: if stalled { ReadyState::Stalled } else { ReadyState::Reconciling }, invalid: None }
    }

    /// Returns the progress with the fault of the spec.
    pub(super) fn with_fault(self, invalid: Option<Explanation>) -> Self {
        Self { invalid, ..self }
    }

    /// Returns a warning if only a person can help and the condition Ready did not say so `before`.
    pub(super) fn event(&self, before: &[Condition]) -> Option<EventRecord> {
        let Explanation { reason, message } = &self.explanation;
        let text = clipped(message.clone());
        let ready = before.iter().find(|condition| condition.type_ == "Ready");
        let is_known = ready.is_some_and(|ready| ready.message == text);
        // The message of these reasons has numbers or times that change, so only the first message becomes an Event.
        let is_repeated = matches!(
            reason,
            Reason::Inconclusive
                | Reason::AnalysisInconclusive
                | Reason::OutsideWindow
                | Reason::OnHold
                | Reason::HubAway
                | Reason::PoliciesUnknown
        );
        let is_new = is_repeated && ready.is_none_or(|ready| ready.reason != reason.as_str());
        (is_new || (is_stuck(*reason) && !is_known)).then(|| EventRecord::new(*reason, message.as_str()))
    }
}

/// Returns whether a user wanted the rollout to stop.
fn is_planned(reason: Reason) -> bool {
    matches!(reason, Reason::AwaitingApproval | Reason::OutsideWindow | Reason::OnHold)
}

/// Sets the conditions of `status`, and the generation that they describe.
pub(super) fn with_conditions(
    mut status: VersionedConfigStatus,
    progress: &ConfigProgress,
    conflict: Option<&str>,
    suspect: Option<&str>,
    generation: Option<i64>,
    now: &Time,
) -> VersionedConfigStatus {
    let weak = status.rollout.watch.as_ref().and_then(|watch| watch.weak.clone());
    let suspect = suspect.map(|message| clipped(message.to_owned())).or_else(|| suspect_message(&status, now));
    let ConfigProgress { explanation: Explanation { reason, message }, state, invalid } = progress;
    let mut set = |kind: ConditionType, value: Option<bool>, reason: Reason, message: &str| match value {
        Some(value) => {
            set_condition(&mut status.conditions, condition(kind, value, reason, message, generation, now));
        }
        None => status.conditions.retain(|condition| condition.type_ != kind.as_str()),
    };
    set(ConditionType::Ready, Some(*state == ReadyState::Ready), *reason, message);
    set(ConditionType::Reconciling, (*state == ReadyState::Reconciling).then_some(true), *reason, message);
    match invalid {
        Some(Explanation { reason, message }) if *state != ReadyState::Stalled => {
            set(ConditionType::Stalled, Some(true), *reason, message);
        }
        _ => set(ConditionType::Stalled, (*state == ReadyState::Stalled).then_some(true), *reason, message),
    }
    set(ConditionType::Conflict, conflict.map(|_| true), Reason::Conflict, conflict.unwrap_or_default());
    set(ConditionType::WeakEvidence, weak.as_ref().map(|_| true), Reason::WeakEvidence, &weak.unwrap_or_default());
    set(ConditionType::Suspect, suspect.as_ref().map(|_| true), Reason::Suspect, &suspect.unwrap_or_default());
    // The writer of the status sets this condition if it is needed.
    set(ConditionType::StatusComplete, None, Reason::StatusRefused, "");
    // All conditions hold for the present spec, and a client that waits for a condition (kubectl wait) ignores an older
    // generation.
    for condition in &mut status.conditions {
        condition.observed_generation = generation;
    }
    status
}

/// Returns the latest time when the condition Suspect ends.
pub(super) fn suspect_until(status: &VersionedConfigStatus) -> Option<Timestamp> {
    let condition = find_condition(&status.conditions, ConditionType::Suspect)?;
    condition.last_transition_time.0.checked_add(SUSPECT_PERIOD).ok()
}

/// Returns the message of the condition Suspect, unless it concerns an older version, or is older than a day.
fn suspect_message(status: &VersionedConfigStatus, now: &Time) -> Option<String> {
    suspect_until(status).filter(|until| now.0 < *until)?;
    let condition = find_condition(&status.conditions, ConditionType::Suspect)?;
    let subject = format!("version {}: ", status.current_version.as_deref()?);
    condition.message.starts_with(&subject).then(|| condition.message.clone())
}

/// Returns a message about objects that do not belong to the versions in their labels, and about invalid versions other
/// than spec.version.
pub(super) fn find_conflict(config: &VersionedConfig, inventory: &Inventory) -> Option<String> {
    let invalid = inventory.others.iter().filter_map(|(version, seal_check)| match seal_check {
        SealCheck::Invalid(message) | SealCheck::Refused(message) if config.requested_version() != Some(version) => {
            Some(message.clone())
        }
        _ => None,
    });
    let messages: Vec<String> = inventory.conflicts.iter().cloned().chain(invalid).collect();
    (!messages.is_empty()).then(|| clipped(messages.join("; ")))
}

/// Returns a warning if a conflict is new.
pub(super) fn conflict_event(conflict: Option<&str>, before: &[Condition]) -> Option<EventRecord> {
    let kind = ConditionType::Conflict.as_str();
    let message = conflict?;
    let is_known = before.iter().any(|condition| condition.type_ == kind && condition.message == message);
    (!is_known).then(|| EventRecord::new(Reason::Conflict, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspicion_ends_after_a_day_or_with_the_version() {
        let at = |hours: i64| Time(Timestamp::from_second(hours * 3600).unwrap());
        let progress = || ConfigProgress::impossible(Reason::Current.explained("m"));
        let said = Some("version 2: 4 of 8 pods on 2 became unready");
        let status =
            VersionedConfigStatus { current_version: Some("2".to_owned()), ..VersionedConfigStatus::default() };
        let suspect = with_conditions(status, &progress(), None, said, None, &at(0));
        assert_eq!(suspect_until(&suspect), Some(at(24).0));
        let later = |status: &VersionedConfigStatus, hours: i64| {
            with_conditions(status.clone(), &progress(), None, None, None, &at(hours))
        };
        let kept = later(&suspect, 23);
        assert_eq!(suspect_until(&kept), Some(at(24).0), "a look does not make it longer");
        assert_eq!(find_condition(&later(&kept, 24).conditions, ConditionType::Suspect), None);
        let left = VersionedConfigStatus { current_version: Some("3".to_owned()), ..suspect };
        assert_eq!(find_condition(&later(&left, 1).conditions, ConditionType::Suspect), None);
    }
}
