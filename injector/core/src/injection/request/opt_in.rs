//! The rule for opting in a pod, shared by injection, restarts and repair.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nudge_protocol::labels::INJECT;
use serde_json::Value;

use crate::injection::annotation_values;
use crate::injection::refusal::InjectionRefusal;

/// The annotation of a mirror pod: a kubelet runs it already from a file, and the API server issues no token for it.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Returns the choice of a pod about injection: the annotation takes precedence over the label of the same name.
fn choice<'a>(is_mirror: bool, annotation: Option<&'a str>, label: Option<&'a str>) -> Option<&'a str> {
    annotation.or(label).filter(|_| !is_mirror)
}

/// Returns whether pods with this metadata opt in.
pub fn opts_in(meta: &ObjectMeta) -> bool {
    let annotations = meta.annotations.as_ref();
    let is_mirror = annotations.is_some_and(|annotations| annotations.contains_key(MIRROR));
    choice(is_mirror, inject_value(annotations), inject_value(meta.labels.as_ref())) == Some("true")
}

fn inject_value(map: Option<&BTreeMap<String, String>>) -> Option<&str> {
    map?.get(INJECT).map(String::as_str)
}

/// Returns whether the pod under review opts in. Refuses other values than `"true"` and `"false"`.
pub(super) fn is_opted_in(raw: &Value) -> Result<bool, InjectionRefusal> {
    let value = |map: &str| raw["metadata"][map][INJECT].as_str();
    match choice(raw["metadata"]["annotations"].get(MIRROR).is_some(), value("annotations"), value("labels")) {
        None => Ok(false),
        Some(text) => annotation_values::flag(text).map_err(|allowed| InjectionRefusal::value(INJECT, text, allowed)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_forms_of_the_rule_agree() {
        let values = [None, Some("true"), Some("false")];
        for (annotation, label, mirror) in
            values.iter().flat_map(|one| values.iter().flat_map(move |other| [(one, other, false), (one, other, true)]))
        {
            let mut metadata = json!({"name": "web", "annotations": {}, "labels": {}});
            for (map, value) in [("annotations", annotation), ("labels", label)] {
                if let Some(value) = value {
                    metadata[map][INJECT] = json!(value);
                }
            }
            if mirror {
                metadata["annotations"][MIRROR] = json!("0123");
            }
            let meta: ObjectMeta = serde_json::from_value(metadata.clone()).unwrap();
            let expected = !mirror && annotation.or(*label) == Some("true");
            assert_eq!((opts_in(&meta), is_opted_in(&json!({"metadata": metadata}))), (expected, Ok(expected)));
        }
    }
}
