//! The mark of a part whose creator may update the ConfigMap of the config's name (see `nudge_core::versions::mark`). It is set on creation,
//! removed where a user wrote it, and kept by an update that lacks it.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, RemoveOperation};
use nudge_protocol::labels::{self, MAY_ACTIVATE};
use serde_json::{Value, json};

use crate::object::VersionObject;

/// The operations after which the part has exactly this mark, or none.
pub fn set_mark(part: &VersionObject, mark: Option<String>) -> Vec<PatchOperation> {
    let path = || PointerBuf::from_tokens(["metadata", "annotations", MAY_ACTIVATE]);
    match mark {
        None if part.annotation(MAY_ACTIVATE).is_none() => Vec::new(),
        None => vec![PatchOperation::Remove(RemoveOperation { path: path() })],
        Some(mark) if part.annotation(MAY_ACTIVATE) == Some(&mark) => Vec::new(),
        Some(mark) => {
            let none = part.metadata.annotations.is_none();
            let annotations = PointerBuf::from_tokens(["metadata", "annotations"]);
            let add = |path, value: Value| PatchOperation::Add(AddOperation { path, value });
            none.then(|| add(annotations, json!({}))).into_iter().chain([add(path(), mark.into())]).collect()
        }
    }
}

/// The operations that restore the mark of a part whose update lacks it, such as one by `kubectl replace`.
pub fn keep_mark(old: &VersionObject, new: &VersionObject) -> Vec<PatchOperation> {
    let forgotten = old.is_labelled() && new.is_labelled() && new.annotation(MAY_ACTIVATE).is_none();
    let mark = old.annotation(MAY_ACTIVATE).filter(|_| forgotten);
    mark.map(|mark| set_mark(new, Some(mark.to_owned()))).unwrap_or_default()
}

/// The warning for a user who creates a part without a mark.
pub fn not_by_itself(part: &VersionObject, because: &str) -> String {
    let [config, version] = [labels::CONFIG, labels::VERSION].map(|label| part.label(label).unwrap_or_default());
    format!(
        "version {version} of config {config} will not become current by itself, because {because}; a user who may has to \
         make it current once it is complete, for instance with kubectl nudge use {config} {version}"
    )
}

#[cfg(test)]
mod tests {
    use json_patch::Patch;
    use nudge_api::PartKind;

    use super::*;
    use crate::fixtures::{part, set_annotation};

    /// The annotations of an object with these, after the operations.
    fn after(annotations: &Value, mark: Option<&str>) -> Value {
        let mut object = part(PartKind::ConfigMap, "a");
        object.metadata.annotations = serde_json::from_value(annotations.clone()).unwrap();
        let mut value = json!({"metadata": {"annotations": annotations}});
        if annotations.is_null() {
            value = json!({"metadata": {}});
        }
        json_patch::patch(&mut value, &Patch(set_mark(&object, mark.map(str::to_owned)))).unwrap();
        value["metadata"]["annotations"].take()
    }

    #[test]
    fn a_part_has_the_mark_that_it_is_given_or_none() {
        let own = json!({"note": "b", MAY_ACTIVATE: "own"});
        assert_eq!(after(&Value::Null, Some("m")), json!({MAY_ACTIVATE: "m"}));
        assert_eq!(after(&own, Some("m")), json!({"note": "b", MAY_ACTIVATE: "m"}));
        assert_eq!(after(&own, None), json!({"note": "b"}));
        assert_eq!(after(&Value::Null, None), Value::Null);
        assert_eq!(after(&own, Some("own")), own);
    }

    #[test]
    fn an_update_without_the_mark_keeps_it() {
        let bare = part(PartKind::ConfigMap, "a");
        let mut marked = bare.clone();
        set_annotation(&mut marked, MAY_ACTIVATE, "m");
        let mut other = bare.clone();
        set_annotation(&mut other, MAY_ACTIVATE, "n");
        assert_eq!(keep_mark(&marked, &bare).len(), 1);
        assert!(keep_mark(&bare, &marked).is_empty() && keep_mark(&marked, &other).is_empty());
        assert!(keep_mark(&marked, &marked).is_empty());
    }
}
