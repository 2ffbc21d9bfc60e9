//! The notes on a part: its mark, if its creator may update the ConfigMap of the config's name (see
//! `nudge_core::versions::mark`); its creator; and its config. They are set on creation. Notes that a user wrote are
//! removed, and an update that lacks the notes keeps them.

use json_patch::PatchOperation;
use nudge_protocol::labels::{self, MADE_BY, MADE_FOR, MAY_ACTIVATE};

use crate::patch::set_annotations;
use crate::version_object::VersionObject;

/// Returns the operations that restore the notes of a part whose update lacks them, such as one by `kubectl replace`.
pub(crate) fn keep_notes(old: &VersionObject, new: &VersionObject) -> Vec<PatchOperation> {
    let lost_note = |label| old.annotation(label).filter(|_| new.annotation(label).is_none()).map(str::to_owned);
    let labels = [MAY_ACTIVATE, MADE_BY, MADE_FOR].into_iter().filter(|_| old.is_labelled() && new.is_labelled());
    let notes = labels.filter_map(|label| Some((label, Some(lost_note(label)?))));
    set_annotations(new.metadata.annotations.as_ref(), notes)
}

/// Returns the warning for a user who creates a part without a mark.
pub(crate) fn unmarked_part(part: &VersionObject, because: &str) -> String {
    let [config, version] = [labels::CONFIG, labels::VERSION].map(|label| part.label(label).unwrap_or_default());
    format!(
        "version {version} of config {config} will not become current by itself, because {because}; a user who may \
         activate it must run kubectl nudge use {config} {version}"
    )
}

#[cfg(test)]
mod tests {
    use json_patch::Patch;
    use nudge_api::PartKind;
    use serde_json::{Value, json};

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
        json_patch::patch(
            &mut value,
            &Patch(set_annotations(object.metadata.annotations.as_ref(), [(MAY_ACTIVATE, mark.map(str::to_owned))])),
        )
        .unwrap();
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
        assert_eq!(keep_notes(&marked, &bare).len(), 1);
        assert!(keep_notes(&bare, &marked).is_empty() && keep_notes(&marked, &other).is_empty());
        assert!(keep_notes(&marked, &marked).is_empty());
        set_annotation(&mut marked, MADE_BY, "1 x alice");
        set_annotation(&mut marked, MADE_FOR, "1 x 00");
        assert_eq!(keep_notes(&marked, &bare).len(), 3);
        assert_eq!(keep_notes(&marked, &other).len(), 2);
        let mut none = bare.clone();
        none.metadata.annotations = None;
        let mut restored = json!({"metadata": {}});
        json_patch::patch(&mut restored, &Patch(keep_notes(&marked, &none))).unwrap();
        assert_eq!(
            restored["metadata"]["annotations"],
            json!({MAY_ACTIVATE: "m", MADE_BY: "1 x alice", MADE_FOR: "1 x 00"})
        );
    }
}
