//! The readiness of the agent. It is ready when it serves a dictionary, and its files are written. Until then it keeps
//! the reason in a file of the state folder, which `wait-ready` prints when it gives up.

use std::fs;
use std::path::{Path, PathBuf};

use crate::files::atomic_file::write_file;

/// The name of the file in the state folder.
const FILE_NAME: &str = "not-ready";

/// The file with the reason why one agent is not ready.
#[derive(Clone, Debug)]
pub struct NotReady {
    path: PathBuf,
    is_cleared: bool,
}

impl NotReady {
    /// Returns the file in this state folder.
    pub fn new(state: &Path) -> Self {
        Self { path: state.join(FILE_NAME), is_cleared: false }
    }

    /// Writes the reason.
    pub fn set_reason(&mut self, reason: &str) {
        self.is_cleared = false;
        // Without the file `wait-ready` gives up without a reason.
        if let Err(error) = write_file(&self.path, 0o600, |file| file.write_all(reason.as_bytes())) {
            tracing::debug!(%error, path = %self.path.display(), "writing the reason failed");
        }
    }

    /// Removes the reason.
    pub fn clear(&mut self) {
        if !std::mem::replace(&mut self.is_cleared, true) {
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Returns the reason, if the agent is not ready.
    pub fn reason(&self) -> Option<String> {
        fs::read_to_string(&self.path).ok()
    }
}
