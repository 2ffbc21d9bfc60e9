//! The content of versions: read from files, divided into objects, and read back from the API server.

pub(crate) mod content;
pub(crate) mod dictionary;
mod env_file;
pub(crate) mod object_names;
pub(crate) mod parts;
pub(crate) mod rules;
pub(crate) mod sources;
pub(crate) mod stored;
