//! The webhook of `RolloutPolicy`s. It refuses policies that can't be used, and authorizes nobody. While it is away,
//! the API server stores even such policies, so that a hold can be lifted then. The status of such a policy shows its
//! faults.

use async_trait::async_trait;
use kube::core::admission::Operation;
use nudge_api::RolloutPolicy;
use nudge_core::governance::policy_faults;

use super::webhook::{Webhook, WebhookError};
use crate::faults::check_faults;
use crate::review::{ReviewRequest, parse_object};
use crate::verdict::AdmissionVerdict;

/// Checks requests about policies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValidatePolicies;

#[async_trait]
impl Webhook for ValidatePolicies {
    fn path(&self) -> &'static str {
        "/validate/policies"
    }

    async fn review(&self, request: &ReviewRequest) -> Result<AdmissionVerdict, WebhookError> {
        request.check_kind::<RolloutPolicy>()?;
        let old = match request.operation {
            Operation::Create => None,
            Operation::Update => Some(parse_object::<RolloutPolicy>(request.required_old_object()?)?),
            Operation::Delete | Operation::Connect => return Ok(AdmissionVerdict::allow()),
        };
        let new: RolloutPolicy = parse_object(request.required_object()?)?;
        let stored = old.map(|old| policy_faults(&old.spec)).unwrap_or_default();
        let title = format!("RolloutPolicy {}", request.object_name());
        Ok(check_faults(&title, &stored, &policy_faults(&new.spec)).into())
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures;

    fn policy(windows: &[(&str, &str)], hold: &Value) -> Value {
        let window = |(name, zone): &(&str, &str)| json!({"name": name, "days": ["Fri"], "from": "09:00", "to": "17:00", "timeZone": zone});
        let windows: Vec<Value> = windows.iter().map(window).collect();
        json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "hours"},
            "spec": {"namespaceSelector": {}, "windows": windows, "hold": hold}
        })
    }

    fn refused(operation: &str, old: Option<&Value>, new: &Value) -> Option<String> {
        let mut request = fixtures::request("RolloutPolicy", operation, old, Some(new));
        request.namespace = None;
        match ValidatePolicies.review(&request).now_or_never().unwrap().unwrap() {
            AdmissionVerdict::Deny(denial) => Some(denial.message),
            AdmissionVerdict::Allow { .. } => None,
        }
    }

    #[test]
    fn windows_that_can_not_be_used_are_refused() {
        let good = policy(&[("day", "UTC"), ("night", "Europe/Berlin")], &Value::Null);
        assert_eq!(refused("CREATE", None, &good), None);
        let bad = policy(&[("day", "UTC"), ("mars", "Mars/Olympus")], &Value::Null);
        let message = "RolloutPolicy hours: spec.windows: window mars: time zone \"Mars/Olympus\" is not known to this release; use \
                       a name of the IANA database, such as Europe/Berlin or UTC";
        for (operation, old) in [("CREATE", None), ("UPDATE", Some(&good))] {
            assert_eq!(refused(operation, old, &bad).as_deref(), Some(message));
        }
    }

    #[test]
    fn a_hold_is_lifted_whatever_is_stored() {
        let windows = [("mars", "Mars/Olympus")];
        let held = policy(&windows, &json!({"reason": "black friday"}));
        assert_eq!(refused("UPDATE", Some(&held), &policy(&windows, &Value::Null)), None, "what is there may stay");
        assert_eq!(refused("UPDATE", Some(&held), &policy(&[], &Value::Null)), None);
    }

    #[test]
    fn what_is_no_policy_gets_no_verdict() {
        let good = policy(&[], &Value::Null);
        let request = fixtures::request("ConfigSource", "CREATE", None, Some(&good));
        assert!(ValidatePolicies.review(&request).now_or_never().unwrap().is_err());
    }
}
