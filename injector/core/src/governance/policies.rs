//! The policies of the cluster that hold in a namespace, and the status of a policy.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{
    ConditionType, Explanation, LabelOperator, LabelRequirement, Reason, RolloutPolicy, RolloutPolicySpec,
    RolloutPolicyStatus, condition, set_condition,
};

use super::windows::window_faults;
use crate::faults::{invalid, no_label_key};

/// The maximum number of policies in a cluster.
pub const MAX_POLICIES: usize = 64;

/// The policies of a namespace, as far as they are known.
#[derive(Clone, Debug, PartialEq)]
pub enum Policies {
    /// The policies are known.
    Known(Vec<Arc<RolloutPolicy>>),
    /// The policies are not known, with the reason and the remedy.
    Unknown(String),
}

impl Default for Policies {
    fn default() -> Self {
        Self::Known(Vec::new())
    }
}

/// How much a policy selects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyReach {
    /// The number of enabled namespaces that the policy selects.
    pub namespaces: u32,
    /// The number of configs in these namespaces.
    pub configs: u32,
}

/// Returns all faults of a policy beyond its schema. The policy holds as far as it can be used: a window that can't be
/// used is never open.
pub fn policy_faults(spec: &RolloutPolicySpec) -> Vec<Explanation> {
    let RolloutPolicySpec { namespace_selector, windows, .. } = spec;
    let fault = |cause: String| invalid("spec.namespaceSelector", cause);
    let requirements = &namespace_selector.match_expressions;
    let keys = namespace_selector.match_labels.keys().chain(requirements.iter().map(|requirement| &requirement.key));
    let bad = keys.filter_map(|key| no_label_key(key));
    let keys = bad.map(|key| fault(format!("no namespace can have a label with the key {key}; correct it")));
    let values = requirements.iter().filter_map(values_fault).map(fault);
    keys.chain(values).chain(window_faults("spec.windows", windows)).collect()
}

fn values_fault(LabelRequirement { key, operator, values }: &LabelRequirement) -> Option<String> {
    let takes_values = matches!(operator, LabelOperator::In | LabelOperator::NotIn);
    match (takes_values, values.is_empty()) {
        (true, true) => Some(format!("{operator:?} needs values of {key:?}; name at least one")),
        (false, false) => Some(format!("{operator:?} takes no values of {key:?}; leave them out")),
        _ => None,
    }
}

/// Returns the next status of the policy. It is the present one if nothing has changed.
pub fn policy_status(policy: &RolloutPolicy, reach: PolicyReach, now: &Time) -> RolloutPolicyStatus {
    let generation = policy.metadata.generation;
    let (is_ready, reason, message) = match policy_faults(&policy.spec).into_iter().next() {
        None => (true, Reason::Valid, "the policy holds in the namespaces that it selects".to_owned()),
        Some(Explanation { reason, message }) => (false, reason, message),
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
            (json!([window("UTC"), window("Mars/Olympus")]), ("False", "UnknownTimeZone")),
        ] {
            let status = policy_status(&policy(&windows), reach, &at(1));
            assert_eq!((status.observed_generation, status.namespaces, status.configs), (Some(3), 2, 5));
            let ready = &status.conditions[0];
            assert_eq!((ready.status.as_str(), ready.reason.as_str()), expected);
            assert_eq!((ready.type_.as_str(), ready.observed_generation), ("Ready", Some(3)));
        }
    }

    #[test]
    fn a_selector_that_no_namespace_can_meet_is_said() {
        let meets = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "tier", "operator": operator, "values": values}]});
        for (selector, said) in [
            (json!({"matchLabels": {"a b": "c"}}), "no namespace can have a label with the key \"a b\"; correct it"),
            (
                json!({"matchExpressions": [{"key": "-a", "operator": "Exists"}]}),
                "no namespace can have a label with the key \"-a\"; correct it",
            ),
            (meets("In", json!([])), "In needs values of \"tier\"; name at least one"),
            (meets("NotIn", json!([])), "NotIn needs values of \"tier\"; name at least one"),
            (meets("Exists", json!(["a"])), "Exists takes no values of \"tier\"; leave them out"),
            (meets("DoesNotExist", json!(["a"])), "DoesNotExist takes no values of \"tier\"; leave them out"),
        ] {
            let mut policy = policy(&json!([]));
            policy.spec.namespace_selector = serde_json::from_value(selector).unwrap();
            let ready = &policy_status(&policy, PolicyReach::default(), &at(1)).conditions[0];
            assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "InvalidSpec"));
            assert_eq!(ready.message, format!("spec.namespaceSelector: {said}"));
        }
        for (operator, values) in
            [("In", json!(["a"])), ("NotIn", json!(["a"])), ("Exists", json!([])), ("DoesNotExist", json!([]))]
        {
            let mut policy = policy(&json!([]));
            policy.spec.namespace_selector = serde_json::from_value(meets(operator, values)).unwrap();
            assert_eq!(policy_faults(&policy.spec), []);
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
