//! Exports, which `kubectl nudge export` writes and `kubectl nudge import` reads.
//!
//! - `document`: the objects of an export, as they stand in it
//! - `stream`: the file, and its bounds
//! - `export`: an export that was read and checked
//! - `status`: the parts of a status that an export keeps, and how a new object takes them over
//! - `compare`: the comparison with the objects that the cluster already has
//! - `part`: whether an object is the part of a version that was sealed
//! - `select`: the choice of the objects that go into an export
//! - `age`: the program that encrypts Secrets
//! - `export_signature`: the signature of an export
//! - `program`: how other programs are run

pub(crate) mod age;
pub(crate) mod compare;
pub(crate) mod document;
pub(crate) mod export;
pub(crate) mod export_signature;
pub(crate) mod part;
pub(crate) mod program;
pub(crate) mod select;
pub(crate) mod status;
pub(crate) mod stream;
