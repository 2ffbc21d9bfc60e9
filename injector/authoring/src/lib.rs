//! The objects of a version, made from its contents. `kubectl nudge create` and sources make identical objects.

mod content;
mod files;
mod object_names;
mod parts;
mod version_name;

pub use content::{Content, ContentError};
pub use files::{FilesError, file_key, keys_of_files};
pub use object_names::{object_names, was_used};
pub use parts::{Common, Keep, OPAQUE, Part, divide, object};
pub use version_name::{digest_name, source_name};
