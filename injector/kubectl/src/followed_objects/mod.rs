//! The text of a config's objects, which users edit with their own rights: reading it, the patch of an edit, and the
//! version that the text is.

mod check;
mod document;
mod text_object;
mod text_version;
mod write;

pub(crate) use check::{check_follows, check_text};
pub(crate) use document::{comments, document, parse, yaml_fault};
pub(crate) use text_object::ConfigText;
pub(crate) use text_version::{describe, find_version, wait_for_text};
pub(crate) use write::{WriteError, warn_of_other_writers, write};
