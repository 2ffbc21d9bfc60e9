//! Whether a pod opts in. Injection, restarts and repair use this rule.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nudge_protocol::labels::INJECT;
use serde_json::Value;

use crate::injection::refusal::Refusal;
use crate::injection::values;

/// Annotation of a mirror pod: a kubelet runs it already from a file, and the API server issues no token for it.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// What a pod says about injection: the annotation takes precedence over the label of the same name.
fn choice<'a>(mirror: bool, annotation: Option<&'a str>, label: Option<&'a str>) -> Option<&'a str> {
    annotation.or(label).filter(|_| !mirror)
}

/// Returns whether pods with this metadata opt in.
pub fn opts_in(meta: &ObjectMeta) -> bool {
    let annotations = meta.annotations.as_ref();
    let mirror = annotations.is_some_and(|annotations| annotations.contains_key(MIRROR));
    choice(mirror, inject(annotations), inject(meta.labels.as_ref())) == Some("true")
}

fn inject(map: Option<&BTreeMap<String, String>>) -> Option<&str> {
    map?.get(INJECT).map(String::as_str)
}

/// Returns whether the pod under review opts in. Refuses other values than `"true"` and `"false"`.
pub(super) fn asks(pod: &Value) -> Result<bool, Refusal> {
    let of = |map: &str| pod["metadata"][map][INJECT].as_str();
    match choice(pod["metadata"]["annotations"].get(MIRROR).is_some(), of("annotations"), of("labels")) {
        None => Ok(false),
        Some(text) => values::flag(text).map_err(|allowed| Refusal::value(INJECT, text, allowed)),
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
            assert_eq!((opts_in(&meta), asks(&json!({"metadata": metadata}))), (expected, Ok(expected)));
        }
    }
}
