//! Sets `immutable: true` on parts of versions, so users need not write it.

use json_patch::PatchOperation;

use crate::patch::add;
use crate::version_object::VersionObject;

/// Returns the operation that makes a part immutable. An existing object that gets the label is left alone: it is not a
/// version, and validation denies the label.
pub(crate) fn make_immutable(old: Option<&VersionObject>, new: &VersionObject) -> Option<PatchOperation> {
    let was_other = old.is_some_and(|old| !old.is_labelled());
    if !new.is_labelled() || new.immutable || new.is_terminating() || was_other {
        return None;
    }
    Some(add(&["immutable"], true.into()))
}

#[cfg(test)]
mod tests {
    use nudge_api::PartKind;
    use serde_json::json;

    use super::*;
    use crate::fixtures::part;

    #[test]
    fn a_part_becomes_immutable_and_nothing_else_does() {
        let done = part(PartKind::ConfigMap, "a");
        assert_eq!(make_immutable(None, &done), None);
        let mut new = done.clone();
        new.immutable = false;
        let change = serde_json::from_value(json!({"op": "add", "path": "/immutable", "value": true})).unwrap();
        assert_eq!(make_immutable(None, &new), Some(change));
        assert!(make_immutable(Some(&new), &new).is_some(), "made while we were down");
        let mut plain = new.clone();
        plain.metadata.labels = None;
        assert_eq!(make_immutable(None, &plain), None);
        assert_eq!(make_immutable(Some(&plain), &new), None);
    }
}
