//! A JSON patch that is built by changing the object, so that each path is right when the patch is applied.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, MoveOperation, Patch, PatchError, PatchOperation, RemoveOperation, ReplaceOperation};
use serde_json::{Value, json};

/// An object and the operations applied to it so far.
#[derive(Debug)]
pub(super) struct Edit {
    object: Value,
    operations: Vec<PatchOperation>,
}

/// A step of a path.
pub(super) enum Step<'a> {
    Key(&'a str),
    At(usize),
    /// After the last element.
    End,
}

impl<'a> From<&'a str> for Step<'a> {
    fn from(key: &'a str) -> Self {
        Self::Key(key)
    }
}

impl From<usize> for Step<'_> {
    fn from(at: usize) -> Self {
        Self::At(at)
    }
}

/// A path of keys and indexes.
macro_rules! steps {
    ($($step:expr),+ $(,)?) => { &[$($crate::injection::patch::edit::Step::from($step)),+][..] };
}
pub(super) use steps;

impl Edit {
    pub(super) fn new(object: &Value) -> Self {
        Self { object: object.clone(), operations: Vec::new() }
    }

    /// The object with the operations applied.
    pub(super) fn object(&self) -> &Value {
        &self.object
    }

    pub(super) fn patch(self) -> Patch {
        Patch(self.operations)
    }

    /// Sets a field, or inserts an element before the one at the index.
    pub(super) fn add(&mut self, path: &[Step<'_>], value: Value) -> Result<(), PatchError> {
        self.apply(PatchOperation::Add(AddOperation { path: pointer(path), value }))
    }

    pub(super) fn replace(&mut self, path: &[Step<'_>], value: Value) -> Result<(), PatchError> {
        self.apply(PatchOperation::Replace(ReplaceOperation { path: pointer(path), value }))
    }

    pub(super) fn remove(&mut self, path: &[Step<'_>]) -> Result<(), PatchError> {
        self.apply(PatchOperation::Remove(RemoveOperation { path: pointer(path) }))
    }

    pub(super) fn shift(&mut self, from: &[Step<'_>], path: &[Step<'_>]) -> Result<(), PatchError> {
        self.apply(PatchOperation::Move(MoveOperation { from: pointer(from), path: pointer(path) }))
    }

    /// Creates an empty list unless there is one.
    pub(super) fn list(&mut self, path: &[Step<'_>]) -> Result<(), PatchError> {
        self.create(path, json!([]))
    }

    /// Creates an empty object unless there is one.
    pub(super) fn map(&mut self, path: &[Step<'_>]) -> Result<(), PatchError> {
        self.create(path, json!({}))
    }

    fn create(&mut self, path: &[Step<'_>], empty: Value) -> Result<(), PatchError> {
        let present = self.object.pointer(pointer(path).as_str()).is_some_and(|value| !value.is_null());
        if present { Ok(()) } else { self.add(path, empty) }
    }

    fn apply(&mut self, operation: PatchOperation) -> Result<(), PatchError> {
        json_patch::patch(&mut self.object, std::slice::from_ref(&operation))?;
        self.operations.push(operation);
        Ok(())
    }
}

fn pointer(path: &[Step<'_>]) -> PointerBuf {
    let mut pointer = PointerBuf::new();
    for step in path {
        match step {
            Step::Key(key) => pointer.push_back(*key),
            Step::At(at) => pointer.push_back(*at),
            Step::End => pointer.push_back("-"),
        }
    }
    pointer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patch_repeats_the_changes() {
        let first = json!({"labels": null, "list": [1, 2, 3]});
        let mut edit = Edit::new(&first);
        edit.map(steps!["labels"]).unwrap();
        edit.map(steps!["labels"]).unwrap();
        edit.add(steps!["labels", "nudge.dev/a~b"], json!("x")).unwrap();
        edit.remove(steps!["list", 0]).unwrap();
        edit.shift(steps!["list", 1], steps!["list", 0]).unwrap();
        edit.replace(steps!["list", 1], json!(9)).unwrap();
        edit.add(steps!["list", Step::End], json!(4)).unwrap();
        edit.list(steps!["more"]).unwrap();
        assert_eq!(edit.object(), &json!({"labels": {"nudge.dev/a~b": "x"}, "list": [3, 9, 4], "more": []}));
        let (last, patch) = (edit.object().clone(), edit.patch());
        let mut object = first;
        json_patch::patch(&mut object, &patch).unwrap();
        assert_eq!((object, patch.0.len()), (last, 7));
    }
}
