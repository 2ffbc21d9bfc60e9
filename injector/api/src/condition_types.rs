//! Conditions by the conventions of the Kubernetes API and of kstatus: positive `Ready`, abnormal `Reconciling` and
//! `Stalled`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use nudge_protocol::bounded_text;

use super::Reason;
use super::variant_names::impl_as_str;

/// The conditions of a `VersionedConfig`, `ConfigSource`, `RolloutPolicy` or `VersionApproval`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// Pods run what the spec says, as far as Nudge is concerned. Of a policy: all of it can be used.
    Ready,
    /// Work is under way.
    Reconciling,
    /// Nothing moves without somebody's help.
    Stalled,
    /// The published ConfigMap holds the current version.
    Published,
    /// The published ConfigMap was changed by others.
    Drifted,
    /// The published Secret holds the current version.
    SecretPublished,
    /// Workloads that take a version by a restart were restarted.
    Restarted,
    /// Calls fail that Nudge makes beside the rollout.
    Impaired,
    /// The object holds all of its status.
    StatusComplete,
    /// Objects with the labels of a version do not belong to it.
    Conflict,
    /// Pods can be bad for longer than the rollout watches them.
    WeakEvidence,
    /// Pods were harmed soon after the version became current.
    Suspect,
    /// The object of a source was read, and can become a version.
    Fetched,
    /// Workloads read the objects themselves, so they see a text before its version is judged.
    UnstagedReaders,
    /// The content of a source follows the rules of the config.
    Valid,
    /// Each query of `spec.rollout.analysis` has an answer.
    Measurable,
    /// The approval counts.
    Counted,
}

impl_as_str!(
    ConditionType: Ready Reconciling Stalled Published Drifted SecretPublished Restarted Impaired StatusComplete
        Conflict WeakEvidence Suspect Fetched UnstagedReaders Valid Measurable Counted
);

/// The maximum length of a message. The API allows 32768; all of a status is to have no more than 64 KiB.
const MAX_MESSAGE_BYTES: usize = 512;

/// Returns the message as a condition can hold it.
pub fn clipped(message: String) -> String {
    bounded_text::clip(message, MAX_MESSAGE_BYTES)
}

/// Returns a condition that becomes true or false at `now`; [`set_condition`] keeps the old time where nothing changes.
pub fn condition(
    kind: ConditionType,
    status: bool,
    reason: Reason,
    message: impl Into<String>,
    generation: Option<i64>,
    now: &Time,
) -> Condition {
    let message = clipped(message.into());
    Condition {
        type_: kind.as_str().to_owned(),
        status: if status { "True" } else { "False" }.to_owned(),
        reason: reason.to_string(),
        message,
        observed_generation: generation,
        last_transition_time: now.clone(),
    }
}

/// Returns the condition of this type, if the object has one.
pub fn find_condition(conditions: &[Condition], kind: ConditionType) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.type_ == kind.as_str())
}

/// Puts `new` in the place of the condition of its type. The time of transition changes with the status only.
pub fn set_condition(conditions: &mut Vec<Condition>, mut new: Condition) {
    match conditions.iter_mut().find(|old| old.type_ == new.type_) {
        Some(old) => {
            if old.status == new.status {
                new.last_transition_time = old.last_transition_time.clone();
            }
            *old = new;
        }
        None => conditions.push(new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Time {
        Time(k8s_openapi::jiff::Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn the_time_changes_with_the_status_only() {
        let mut conditions = Vec::new();
        let set = |conditions: &mut Vec<Condition>, status, reason, second| {
            set_condition(conditions, condition(ConditionType::Ready, status, reason, "m", Some(1), &at(second)));
        };
        set(&mut conditions, false, Reason::Pending, 1);
        set(&mut conditions, false, Reason::Applied, 2);
        assert_eq!((conditions[0].reason.as_str(), &conditions[0].last_transition_time), ("Applied", &at(1)));
        set(&mut conditions, true, Reason::Applied, 3);
        assert_eq!((conditions.len(), &conditions[0].last_transition_time), (1, &at(3)));
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let long = "é".repeat(MAX_MESSAGE_BYTES);
        let cut = condition(ConditionType::Ready, true, Reason::Current, format!("x{long}"), None, &at(1));
        assert_eq!(cut.message.len(), MAX_MESSAGE_BYTES - 1);
    }
}
