//! The fault of one of the agent's files.

use std::error::Error;
use std::path::{Path, PathBuf};

use nudge_protocol::error_chain::message;

/// The reason why a file or folder can't be used.
#[derive(Debug, thiserror::Error)]
#[error("{} {fault}: {cause}", path.display())]
pub struct FileError {
    path: PathBuf,
    fault: &'static str,
    cause: String,
}

impl FileError {
    /// The fault of a file that can't be read.
    pub const UNREADABLE: &'static str = "can't be read";
    /// The fault of a file that can't be written.
    pub const UNWRITABLE: &'static str = "can't be written";

    /// Returns the error of this path, from its cause.
    pub fn at<E: Error>(path: &Path, fault: &'static str) -> impl FnOnce(E) -> Self {
        move |cause| Self { path: path.to_owned(), fault, cause: message(&cause) }
    }
}
