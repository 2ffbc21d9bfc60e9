//! `RolloutPolicy`: the gates that keep versions from pods in many namespaces, for administrators of the cluster.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::governance::{Approval, PolicyHold, Window};

/// Namespaces that the policy is about, and what the versions of their configs wait for. The rules of the configs count
/// as well: where both have a rule, the stricter one counts.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "nudge.dev",
    version = "v1alpha1",
    kind = "RolloutPolicy",
    shortname = "rpol",
    doc = "RolloutPolicy says when versions of the configs of some namespaces may continue, and who must approve them, beside what the configs say themselves.",
    status = "RolloutPolicyStatus",
    crates(kube_core = "::kube_core"),
    derive = "PartialEq",
    printcolumn = r#"{"name":"Hold","type":"string","jsonPath":".spec.hold.reason","description":"Why no version continues."}"#,
    printcolumn = r#"{"name":"Until","type":"string","jsonPath":".spec.hold.untilTime","description":"When the hold ends."}"#,
    printcolumn = r#"{"name":"Approvals","type":"integer","jsonPath":".spec.approval.required","description":"How many users must approve a version."}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status","description":"All of the policy can be used."}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct RolloutPolicySpec {
    /// Namespaces that the policy is about, by their labels. An empty selector selects all namespaces.
    pub namespace_selector: NamespaceSelector,
    /// Lets no version in these namespaces begin or continue. A bad version is rolled back all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<PolicyHold>,
    /// Times of the week in which versions may continue, at most 16. When empty, the policy restricts no times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub windows: Vec<Window>,
    /// Approvals that a version needs before any pod gets it. When absent, the policy requires no approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
}

/// State of the policy: whether all of it can be used, and the number of configs that it is about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutPolicyStatus {
    /// The metadata.generation that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Number of enabled namespaces that the policy selects.
    pub namespaces: u32,
    /// Number of configs in the selected namespaces.
    pub configs: u32,
    /// Conditions of the policy: Ready is True if all of it can be used, and else False with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Namespaces with all of these labels that meet all of these requirements.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceSelector {
    /// Labels that a namespace must have, with these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32, "additionalProperties" = {"type": "string", "maxLength": 63, "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"}))]
    pub match_labels: BTreeMap<String, String>,
    /// Requirements that a namespace must meet, at most 32. All of them count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub match_expressions: Vec<LabelRequirement>,
}

/// A requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelRequirement {
    /// Key of the label.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// Comparison of the label: `In` (it has one of the values), `NotIn` (it has none of them, or is missing),
    /// `Exists` or `DoesNotExist` (whatever its value).
    pub operator: LabelOperator,
    /// Values for In and NotIn, at most 64. Leave them out for Exists and DoesNotExist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        inner(length(max = 63), regex(pattern = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"))
    )]
    pub values: Vec<String>,
}

/// A relation of a label to values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LabelOperator {
    /// The label has one of the values.
    In,
    /// The label has none of the values, or is not there.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is not there.
    DoesNotExist,
}

impl NamespaceSelector {
    /// Returns whether the selector matches a namespace with these labels.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| requirement.is_met(labels))
    }
}

impl LabelRequirement {
    fn is_met(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let is_listed = value.is_some_and(|value| self.values.contains(value));
        match self.operator {
            LabelOperator::In => is_listed,
            LabelOperator::NotIn => !is_listed,
            LabelOperator::Exists => value.is_some(),
            LabelOperator::DoesNotExist => value.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn selects(selector: Value, labels: &[(&str, &str)]) -> bool {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        serde_json::from_value::<NamespaceSelector>(selector).unwrap().selects(&labels)
    }

    #[test]
    fn an_empty_selector_selects_all() {
        assert!(selects(json!({}), &[]) && selects(json!({}), &[("tier", "prod")]));
    }

    #[test]
    fn labels_and_requirements_must_all_hold() {
        let tier = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "tier", "operator": operator, "values": values}]});
        let (prod, test, none) = (&[("tier", "prod")][..], &[("tier", "test")][..], &[][..]);
        for (selector, expected) in [
            (json!({"matchLabels": {"tier": "prod"}}), [true, false, false]),
            (tier("In", json!(["prod", "stage"])), [true, false, false]),
            (tier("NotIn", json!(["prod"])), [false, true, true]),
            (tier("Exists", json!([])), [true, true, false]),
            (tier("DoesNotExist", json!([])), [false, false, true]),
        ] {
            assert_eq!([prod, test, none].map(|labels| selects(selector.clone(), labels)), expected, "{selector}");
        }
        let both =
            json!({"matchLabels": {"tier": "prod"}, "matchExpressions": [{"key": "team", "operator": "Exists"}]});
        assert!(!selects(both.clone(), prod) && selects(both, &[("tier", "prod"), ("team", "a")]));
    }

    #[test]
    fn a_policy_says_which_namespaces_it_is_about() {
        let spec = |spec: Value| serde_json::from_value::<RolloutPolicySpec>(spec);
        assert!(spec(json!({"hold": {"reason": "x"}})).is_err());
        assert!(spec(json!({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}})).is_err());
        let empty = spec(json!({"namespaceSelector": {}})).unwrap();
        assert_eq!(empty, RolloutPolicySpec::default());
    }
}
