//! Exports: what `kubectl nudge export` writes and `kubectl nudge import` reads.
//!
//! - `document`: the objects of an export, as they stand in it
//! - `stream`: the file, and its bounds
//! - `export`: an export that was read and checked
//! - `status`: what an export keeps of a status, and how a new object takes it over
//! - `compare`: what is there already, and what differs
//! - `part`: whether an object is the part of a version that was sealed
//! - `select`: what goes into an export, and what is left out
//! - `age`: the program that encrypts Secrets
//! - `signature`: who made an export
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
