//! The policies of the cluster that a namespace is under, and what the status of a policy says.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{ConditionType, Reason, RolloutPolicy, RolloutPolicyStatus, condition, set_condition};

use super::windows::check_windows;

/// How many policies a cluster can have.
pub const MOST_POLICIES: usize = 64;

/// What is known of the policies of a namespace.
#[derive(Clone, Debug, PartialEq)]
pub enum Policies {
    /// These.
    Known(Vec<Arc<RolloutPolicy>>),
    /// They can't be known: why, and what to do.
    Unknown(String),
}

impl Default for Policies {
    fn default() -> Self {
        Self::Known(Vec::new())
    }
}

/// What a policy is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyReach {
    /// How many enabled namespaces it selects.
    pub namespaces: u32,
    /// How many configs these have.
    pub configs: u32,
}

/// The status that the policy is to have. It is the one that it has where nothing has changed.
pub fn policy_status(policy: &RolloutPolicy, reach: PolicyReach, now: &Time) -> RolloutPolicyStatus {
    let generation = policy.metadata.generation;
    let (is_ready, reason, message) = match check_windows(&policy.spec.windows) {
        Ok(()) => (true, Reason::Valid, "the policy holds in the namespaces that it selects".to_owned()),
        Err(fault) => (false, fault.reason(), fault.to_string()),
    };
    let mut conditions = policy.status.clone().unwrap_or_default().conditions;
    set_condition(&mut conditions, condition(ConditionType::Ready, is_ready, reason, message, generation, now));
    let PolicyReach { namespaces, configs } = reach;
    RolloutPolicyStatus { observed_generation: generation, namespaces, configs, conditions }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;

    fn policy(windows: &Value) -> RolloutPolicy {
        let spec = json!({"namespaceSelector": {}, "windows": windows});
        let policy = json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "hours", "generation": 3}, "spec": spec
        });
        serde_json::from_value(policy).unwrap()
    }

    fn window(zone: &str) -> Value {
        json!({"name": "day", "days": ["Mon"], "from": "09:00", "to": "17:00", "timeZone": zone})
    }

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn the_status_says_whether_the_policy_can_be_used_and_what_it_is_about() {
        let reach = PolicyReach { namespaces: 2, configs: 5 };
        for (windows, expected) in [
            (json!([]), ("True", "Valid")),
            (json!([window("UTC")]), ("True", "Valid")),
            (json!([window("Mars/Olympus")]), ("False", "UnknownTimeZone")),
            (json!([window("UTC"), window("UTC")]), ("False", "InvalidWindow")),
        ] {
            let status = policy_status(&policy(&windows), reach, &at(1));
            assert_eq!((status.observed_generation, status.namespaces, status.configs), (Some(3), 2, 5));
            let ready = &status.conditions[0];
            assert_eq!((ready.status.as_str(), ready.reason.as_str()), expected);
            assert_eq!((ready.type_.as_str(), ready.observed_generation), ("Ready", Some(3)));
        }
    }

    #[test]
    fn at_rest_it_stays_as_it_is() {
        let reach = PolicyReach { namespaces: 1, configs: 0 };
        let mut stored = policy(&json!([window("Mars/Olympus")]));
        let status = policy_status(&stored, reach, &at(1));
        stored.status = Some(status.clone());
        assert_eq!(policy_status(&stored, reach, &at(99)), status);
        let more = policy_status(&stored, PolicyReach { configs: 1, ..reach }, &at(99));
        assert_eq!((more.configs, &more.conditions), (1, &status.conditions), "numbers are no transition");
        stored.spec.windows.clear();
        let repaired = &policy_status(&stored, reach, &at(99)).conditions;
        assert_eq!((repaired.len(), &repaired[0].last_transition_time), (1, &at(99)));
    }
}
