//! A JSON patch that grows with the object that it changes, so that every path is right when its turn comes.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, MoveOperation, Patch, PatchError, PatchOperation, RemoveOperation, ReplaceOperation};
use serde_json::{Value, json};

/// An object and the changes made to it so far.
#[derive(Debug)]
pub(super) struct Edit {
    object: Value,
    made: Vec<PatchOperation>,
}

/// One step of a path.
pub(super) enum Step<'a> {
    Key(&'a str),
    At(usize),
    /// Behind the last element.
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

/// Makes a path of keys and numbers.
macro_rules! place {
    ($($step:expr),+ $(,)?) => { &[$($crate::injection::edit::Step::from($step)),+][..] };
}
pub(super) use place;

impl Edit {
    pub(super) fn new(object: &Value) -> Self {
        Self { object: object.clone(), made: Vec::new() }
    }

    /// As it is now.
    pub(super) fn object(&self) -> &Value {
        &self.object
    }

    pub(super) fn patch(self) -> Patch {
        Patch(self.made)
    }

    /// Sets a field, or puts an element in before the one that is there.
    pub(super) fn add(&mut self, path: &[Step<'_>], value: Value) -> Result<(), PatchError> {
        self.make(PatchOperation::Add(AddOperation { path: pointer(path), value }))
    }

    pub(super) fn replace(&mut self, path: &[Step<'_>], value: Value) -> Result<(), PatchError> {
        self.make(PatchOperation::Replace(ReplaceOperation { path: pointer(path), value }))
    }

    pub(super) fn remove(&mut self, path: &[Step<'_>]) -> Result<(), PatchError> {
        self.make(PatchOperation::Remove(RemoveOperation { path: pointer(path) }))
    }

    pub(super) fn shift(&mut self, from: &[Step<'_>], path: &[Step<'_>]) -> Result<(), PatchError> {
        self.make(PatchOperation::Move(MoveOperation { from: pointer(from), path: pointer(path) }))
    }

    /// Makes a list where there is none yet.
    pub(super) fn list(&mut self, path: &[Step<'_>]) -> Result<(), PatchError> {
        self.there(path, json!([]))
    }

    /// Makes an object where there is none yet.
    pub(super) fn map(&mut self, path: &[Step<'_>]) -> Result<(), PatchError> {
        self.there(path, json!({}))
    }

    fn there(&mut self, path: &[Step<'_>], empty: Value) -> Result<(), PatchError> {
        let present = self.object.pointer(pointer(path).as_str()).is_some_and(|value| !value.is_null());
        if present { Ok(()) } else { self.add(path, empty) }
    }

    fn make(&mut self, operation: PatchOperation) -> Result<(), PatchError> {
        json_patch::patch(&mut self.object, std::slice::from_ref(&operation))?;
        self.made.push(operation);
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
    fn the_patch_does_to_the_first_object_what_was_done() {
        let first = json!({"labels": null, "list": [1, 2, 3]});
        let mut edit = Edit::new(&first);
        edit.map(place!["labels"]).unwrap();
        edit.map(place!["labels"]).unwrap();
        edit.add(place!["labels", "nudge.dev/a~b"], json!("x")).unwrap();
        edit.remove(place!["list", 0]).unwrap();
        edit.shift(place!["list", 1], place!["list", 0]).unwrap();
        edit.replace(place!["list", 1], json!(9)).unwrap();
        edit.add(place!["list", Step::End], json!(4)).unwrap();
        edit.list(place!["more"]).unwrap();
        assert_eq!(edit.object(), &json!({"labels": {"nudge.dev/a~b": "x"}, "list": [3, 9, 4], "more": []}));
        let (last, patch) = (edit.object().clone(), edit.patch());
        let mut object = first;
        json_patch::patch(&mut object, &patch).unwrap();
        assert_eq!((object, patch.0.len()), (last, 7));
    }
}
