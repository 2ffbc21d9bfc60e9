//! Operations of JSON Patch on the metadata of an object.

use std::collections::BTreeMap;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, RemoveOperation};
use serde_json::{Value, json};

/// Returns the operations that set each annotation that has a text, and remove each annotation that has none.
pub(crate) fn set_annotations<'a>(
    stored: Option<&BTreeMap<String, String>>,
    annotations: impl IntoIterator<Item = (&'a str, Option<String>)>,
) -> Vec<PatchOperation> {
    set_entries("annotations", stored, annotations)
}

/// Returns the operations that set each entry of the metadata's `field` that has a text, and remove each entry that has
/// none.
pub(crate) fn set_entries<'a>(
    field: &str,
    stored: Option<&BTreeMap<String, String>>,
    entries: impl IntoIterator<Item = (&'a str, Option<String>)>,
) -> Vec<PatchOperation> {
    let mut lacks_field = stored.is_none();
    let mut operations = Vec::new();
    for (name, text) in entries {
        match (stored.and_then(|stored| stored.get(name)), text) {
            (Some(_), None) => {
                let path = PointerBuf::from_tokens(["metadata", field, name]);
                operations.push(PatchOperation::Remove(RemoveOperation { path }));
            }
            (stored, Some(text)) if stored != Some(&text) => {
                if std::mem::take(&mut lacks_field) {
                    operations.push(add(&["metadata", field], json!({})));
                }
                operations.push(add(&["metadata", field, name], text.into()));
            }
            _ => {}
        }
    }
    operations
}

/// Returns the operation that sets the field at `path`.
pub(crate) fn add(path: &[&str], value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation { path: PointerBuf::from_tokens(path.iter().copied()), value })
}
