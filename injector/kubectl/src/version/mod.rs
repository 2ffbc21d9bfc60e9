//! The content of versions: read from files, and read back from the API server.

pub(crate) mod dictionary;
pub(crate) mod digest;
mod env_file;
#[cfg(unix)]
pub(crate) mod from_git;
pub(crate) mod from_oci;
pub(crate) mod rules;
pub(crate) mod sources;
pub(crate) mod stored;
