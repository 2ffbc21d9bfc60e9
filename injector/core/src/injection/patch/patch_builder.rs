//! A builder of JSON patches that changes the object itself, so that each path is right when the patch is applied.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, MoveOperation, Patch, PatchError, PatchOperation, RemoveOperation, ReplaceOperation};
use serde_json::{Value, json};

/// An object and the operations applied to it so far.
#[derive(Debug)]
pub(super) struct PatchBuilder {
    object: Value,
    operations: Vec<PatchOperation>,
}

/// The last token of a path after the last element of a list.
pub(super) const END: &str = "-";

/// A path of keys and indexes.
macro_rules! pointer {
    ($($token:expr),+ $(,)?) => {
        json_patch::jsonptr::PointerBuf::from_tokens([$(json_patch::jsonptr::Token::from($token)),+])
    };
}
pub(super) use pointer;

impl PatchBuilder {
    pub(super) fn new(object: &Value) -> Self {
        Self { object: object.clone(), operations: Vec::new() }
    }

    /// Returns the object with the operations applied.
    pub(super) fn object(&self) -> &Value {
        &self.object
    }

    pub(super) fn patch(self) -> Patch {
        Patch(self.operations)
    }

    /// Sets a field, or inserts an element before the one at the index.
    pub(super) fn add(&mut self, path: PointerBuf, value: Value) -> Result<(), PatchError> {
        self.apply(PatchOperation::Add(AddOperation { path, value }))
    }

    pub(super) fn replace(&mut self, path: PointerBuf, value: Value) -> Result<(), PatchError> {
        self.apply(PatchOperation::Replace(ReplaceOperation { path, value }))
    }

    pub(super) fn remove(&mut self, path: PointerBuf) -> Result<(), PatchError> {
        self.apply(PatchOperation::Remove(RemoveOperation { path }))
    }

    pub(super) fn move_element(&mut self, from: PointerBuf, path: PointerBuf) -> Result<(), PatchError> {
        self.apply(PatchOperation::Move(MoveOperation { from, path }))
    }

    /// Creates an empty list unless there is a list.
    pub(super) fn create_list(&mut self, path: PointerBuf) -> Result<(), PatchError> {
        self.create(path, json!([]))
    }

    /// Creates an empty object unless there is an object.
    pub(super) fn create_map(&mut self, path: PointerBuf) -> Result<(), PatchError> {
        self.create(path, json!({}))
    }

    /// Sets an annotation of the pod, or removes it if there is no `text`.
    pub(super) fn set_annotation(&mut self, name: &str, text: Option<String>) -> Result<(), PatchError> {
        let present = self.object["metadata"]["annotations"].get(name);
        match text {
            None if present.is_none() => Ok(()),
            None => self.remove(pointer!["metadata", "annotations", name]),
            Some(text) if present.is_some_and(|present| *present == text) => Ok(()),
            Some(text) => {
                self.create_map(pointer!["metadata"])?;
                self.create_map(pointer!["metadata", "annotations"])?;
                self.add(pointer!["metadata", "annotations", name], json!(text))
            }
        }
    }

    fn create(&mut self, path: PointerBuf, empty: Value) -> Result<(), PatchError> {
        let is_present = self.object.pointer(path.as_str()).is_some_and(|value| !value.is_null());
        if is_present { Ok(()) } else { self.add(path, empty) }
    }

    fn apply(&mut self, operation: PatchOperation) -> Result<(), PatchError> {
        json_patch::patch(&mut self.object, std::slice::from_ref(&operation))?;
        self.operations.push(operation);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patch_repeats_the_changes() {
        let first = json!({"labels": null, "list": [1, 2, 3]});
        let mut builder = PatchBuilder::new(&first);
        builder.create_map(pointer!["labels"]).unwrap();
        builder.create_map(pointer!["labels"]).unwrap();
        builder.add(pointer!["labels", "nudge.dev/a~b"], json!("x")).unwrap();
        builder.remove(pointer!["list", 0]).unwrap();
        builder.move_element(pointer!["list", 1], pointer!["list", 0]).unwrap();
        builder.replace(pointer!["list", 1], json!(9)).unwrap();
        builder.add(pointer!["list", END], json!(4)).unwrap();
        builder.create_list(pointer!["more"]).unwrap();
        assert_eq!(builder.object(), &json!({"labels": {"nudge.dev/a~b": "x"}, "list": [3, 9, 4], "more": []}));
        let (last, patch) = (builder.object().clone(), builder.patch());
        let mut object = first;
        json_patch::patch(&mut object, &patch).unwrap();
        assert_eq!((object, patch.0.len()), (last, 7));
    }
}
