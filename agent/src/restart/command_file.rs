//! The last command to restart, in the agent's state folder: the agent ends with the command, and reads it when it
//! starts again.

use std::io;
use std::path::{Path, PathBuf};

use super::command_decision::RestartCommand;
use crate::files::atomic_file::{read_json, write_json};

/// The name of the file in the state folder.
const FILE_NAME: &str = "restart";

/// The file with the last command of one agent.
#[derive(Clone, Debug)]
pub struct CommandFile {
    path: PathBuf,
}

impl CommandFile {
    /// Returns the file in this state folder.
    pub fn new(state: &Path) -> Self {
        Self { path: state.join(FILE_NAME) }
    }

    /// Reads the file. If that fails, no restart counts as commanded.
    pub fn load(&self) -> Option<RestartCommand> {
        read_json(&self.path).unwrap_or_else(|error| {
            tracing::warn!(%error, path = %self.path.display(), "record of the last restart not read");
            None
        })
    }

    /// Writes the file.
    pub fn store(&self, command: &RestartCommand) -> io::Result<()> {
        write_json(&self.path, command)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use nudge_protocol::ContainerName;

    use super::*;

    #[test]
    fn the_record_is_read_back_and_a_damaged_one_is_none() {
        let state = tempfile::tempdir().unwrap();
        let file = CommandFile::new(state.path());
        assert_eq!(file.load(), None);
        let before = [(ContainerName::new("app").unwrap(), "a".to_owned())].into();
        let last = RestartCommand { content: "x".to_owned(), before, times: 1 };
        file.store(&last).unwrap();
        assert_eq!(file.load(), Some(last));
        fs::write(state.path().join(FILE_NAME), "{").unwrap();
        assert_eq!(file.load(), None);
    }
}
