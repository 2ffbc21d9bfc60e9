//! The labels that a pod is created with, as an annotation. Selectors of steps are compared with these labels even if
//! the pod's labels change later.

use std::collections::BTreeMap;

use json_patch::PatchError;
use nudge_protocol::labels::{AGENT, BIRTH_LABELS};
use serde_json::Value;

use super::patch_builder::PatchBuilder;

/// The maximum length of the annotation, so that all annotations together do not exceed their limit. A pod with more
/// labels gets no annotation, and its present labels count.
const MAX_BYTES: usize = 16 * 1024;

/// Returns the labels as JSON, without the label that injection adds.
fn annotation_text(labels: &Value) -> Option<String> {
    let labels = labels.as_object().into_iter().flatten().filter(|(key, _)| *key != AGENT);
    let labels: BTreeMap<&String, &str> = labels.filter_map(|(key, value)| Some((key, value.as_str()?))).collect();
    serde_json::to_string(&labels).ok().filter(|text| text.len() <= MAX_BYTES)
}

/// Sets or removes the annotation. A pod may have it as a copy of another pod.
pub(super) fn write(builder: &mut PatchBuilder, is_needed: bool) -> Result<(), PatchError> {
    let text = is_needed.then(|| annotation_text(&builder.object()["metadata"]["labels"])).flatten();
    builder.set_annotation(BIRTH_LABELS, text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn after(pod: &Value, wanted: bool) -> (Value, usize) {
        let mut builder = PatchBuilder::new(pod);
        write(&mut builder, wanted).unwrap();
        (builder.object().clone(), builder.patch().0.len())
    }

    #[test]
    fn the_annotation_has_the_labels_of_this_creation() {
        let pod =
            |labels: Value, annotations: Value| json!({"metadata": {"labels": labels, "annotations": annotations}});
        let noted = |text: &str| json!({BIRTH_LABELS: text});
        let zone = json!({"zone": "a", AGENT: "0.1.0"});
        let (first, _) = after(&pod(zone.clone(), Value::Null), true);
        assert_eq!(first["metadata"]["annotations"], noted(r#"{"zone":"a"}"#));
        assert_eq!(after(&first, true), (first.clone(), 0), "a second run changes nothing");
        let copy = pod(json!({"zone": "b"}), noted(r#"{"zone":"a"}"#));
        assert_eq!(after(&copy, true).0["metadata"]["annotations"], noted(r#"{"zone":"b"}"#));
        assert_eq!(after(&copy, false).0["metadata"]["annotations"], json!({}));
        assert_eq!(after(&pod(zone, json!({})), false).1, 0);
        assert_eq!(after(&json!({"metadata": {}}), true).0["metadata"]["annotations"], noted("{}"));
    }

    #[test]
    fn too_many_labels_are_not_noted() {
        let labels = |count: usize| (0..count).map(|at| (format!("l{at}"), json!("x".repeat(63)))).collect::<Value>();
        let pod = |count| json!({"metadata": {"labels": labels(count)}});
        assert_eq!(after(&pod(100), true).1, 2);
        assert_eq!(after(&pod(1000), true).1, 0);
    }
}
