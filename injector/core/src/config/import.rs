//! A config that is being restored from an export (`nudge.dev/importing`): Nudge leaves it alone until its status is
//! restored.
//!
//! Otherwise a config without a status would count as new: it would get another identity, and its oldest version would
//! become current.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{ConditionType, Reason, VersionedConfig, VersionedConfigStatus, condition, set_condition};
use nudge_protocol::labels;

const MESSAGE: &str =
    "the config is being imported; nothing is sealed, moved, published or deleted until kubectl nudge import has ended";

/// Returns whether the config is being restored.
pub fn is_importing(config: &VersionedConfig) -> bool {
    config.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(labels::IMPORTING))
}

/// Returns the status with the conditions of a config that is being restored, and no other change.
pub fn importing_status(
    mut status: VersionedConfigStatus,
    generation: Option<i64>,
    now: &Time,
) -> VersionedConfigStatus {
    status.conditions.retain(|condition| condition.type_ != ConditionType::Stalled.as_str());
    for (kind, is_true) in [(ConditionType::Ready, false), (ConditionType::Reconciling, true)] {
        let condition = condition(kind, is_true, Reason::Importing, MESSAGE, generation, now);
        set_condition(&mut status.conditions, condition);
    }
    status.observed_generation = generation;
    if status.pods.summary.is_empty() {
        // Kubernetes 1.20 reads an empty string as null.
        "0/0".clone_into(&mut status.pods.summary);
    }
    status
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use nudge_api::{InternalStatus, VersionedConfigSpec, find_condition};

    use super::*;

    #[test]
    fn the_conditions_say_so_and_the_rest_stays() {
        let at = |second| Time(Timestamp::from_second(second).unwrap());
        let before = VersionedConfigStatus {
            current_version: Some("1".to_owned()),
            conditions: vec![condition(ConditionType::Stalled, true, Reason::OnHold, "m", None, &at(1))],
            internal: InternalStatus { revision: 7, ..InternalStatus::default() },
            ..VersionedConfigStatus::default()
        };
        let marked = importing_status(before.clone(), Some(3), &at(2));
        let ready = find_condition(&marked.conditions, ConditionType::Ready).unwrap();
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "Importing"));
        assert_eq!(marked.conditions.len(), 2, "{:?}", marked.conditions);
        assert_eq!(importing_status(marked.clone(), Some(3), &at(9)), marked, "it is written once");
        let rest = VersionedConfigStatus {
            conditions: Vec::new(),
            observed_generation: None,
            pods: before.pods.clone(),
            ..marked
        };
        assert_eq!(rest, VersionedConfigStatus { conditions: Vec::new(), ..before });
    }

    #[test]
    fn the_annotation_says_so_whatever_its_value() {
        let mut config = VersionedConfig::new("shop", VersionedConfigSpec::default());
        assert!(!is_importing(&config));
        config.metadata.annotations = Some([(labels::IMPORTING.to_owned(), String::new())].into());
        assert!(is_importing(&config));
    }
}
