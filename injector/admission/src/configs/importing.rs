//! The annotation `nudge.dev/importing`: while a config has it, nothing acts on the config, and its status is written by somebody else. To set,
//! change or remove it takes the verb `import`.

use kube::core::dynamic::DynamicObject;
use nudge_protocol::labels::IMPORTING;

use crate::verdict::Denial;

/// What a request does about the annotation, if it does anything.
pub(crate) fn imports(old: Option<&DynamicObject>, new: &DynamicObject) -> Option<&'static str> {
    let of = |object: &DynamicObject| object.metadata.annotations.as_ref()?.get(IMPORTING).cloned();
    let (before, after) = (old.and_then(of), of(new));
    match (before, after) {
        (before, after) if before == after => None,
        (_, Some(_)) => Some("set its annotation nudge.dev/importing"),
        (_, None) => Some("remove its annotation nudge.dev/importing"),
    }
}

/// The denial for a user who may not import the config.
pub(crate) fn may_not_import(user: &str, namespace: &str, name: &str, what: &str) -> Denial {
    Denial::forbidden(format!(
        "VersionedConfig {name}: user {user:?} may not {what}, because that decides whether Nudge acts on the config; this needs the right to \
         import VersionedConfig {name} in namespace {namespace} (ClusterRole nudge-restore)"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(annotations: &Value) -> DynamicObject {
        let object = json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop", "annotations": annotations}});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn every_change_of_the_annotation_counts_and_nothing_else() {
        let (none, other) = (object(&json!(null)), object(&json!({"note": "a"})));
        let (set, changed) = (object(&json!({IMPORTING: ""})), object(&json!({IMPORTING: "x", "note": "a"})));
        for (old, new) in [(None, &none), (None, &other), (Some(&none), &other), (Some(&set), &set)] {
            assert_eq!(imports(old, new), None);
        }
        for (old, new) in [(None, &set), (Some(&none), &set), (Some(&set), &changed)] {
            assert!(imports(old, new).unwrap().starts_with("set its annotation"));
        }
        assert!(imports(Some(&set), &other).unwrap().starts_with("remove its annotation"));
    }
}
