//! Whether the agent is ready: it is when it serves a dictionary, and its files are there. Until then it keeps the reason in a file of the state
//! folder, which `wait-ready` prints when it gives up.

use std::fs;
use std::path::{Path, PathBuf};

use crate::private_file::write_whole;

/// Its name in the state folder.
const FILE: &str = "not-ready";

/// The file of one agent.
#[derive(Clone, Debug)]
pub struct NotReady {
    path: PathBuf,
    cleared: bool,
}

impl NotReady {
    /// The file in the state folder.
    pub fn new(state: &Path) -> Self {
        Self { path: state.join(FILE), cleared: false }
    }

    /// Writes the reason.
    pub fn say(&mut self, reason: &str) {
        self.cleared = false;
        // Without the file `wait-ready` gives up without a reason.
        if let Err(error) = write_whole(&self.path, 0o600, |file| file.write_all(reason.as_bytes())) {
            tracing::debug!(%error, path = %self.path.display(), "writing the reason failed");
        }
    }

    /// Removes the reason: something is served now, and its files are there.
    pub fn clear(&mut self) {
        if !std::mem::replace(&mut self.cleared, true) {
            let _ = fs::remove_file(&self.path);
        }
    }

    /// The reason, if there is one.
    pub fn reason(&self) -> Option<String> {
        fs::read_to_string(&self.path).ok()
    }
}
