//! The last command to restart, in the agent's state folder: the agent ends with the command, and reads it when it starts again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::retry::Command;
use crate::private_file::write_whole;

/// The name of the file in the state folder.
const FILE: &str = "restart";

/// The file of one agent.
#[derive(Clone, Debug)]
pub struct CommandFile {
    path: PathBuf,
}

impl CommandFile {
    /// Returns the file in the state folder.
    pub fn new(state: &Path) -> Self {
        Self { path: state.join(FILE) }
    }

    /// Reads the file. If that fails, no restart counts as commanded.
    pub fn load(&self) -> Option<Command> {
        let read = match fs::read(&self.path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => Err(error),
        };
        read.inspect_err(|error| {
            tracing::warn!(%error, path = %self.path.display(), "record of the last restart not read");
        })
        .ok()
    }

    /// Writes the file.
    pub fn store(&self, command: &Command) -> io::Result<()> {
        let bytes = serde_json::to_vec(command)?;
        write_whole(&self.path, 0o600, |file| file.write_all(&bytes))
    }
}

#[cfg(test)]
mod tests {
    use nudge_protocol::ContainerName;

    use super::*;

    #[test]
    fn the_record_is_read_back_and_a_damaged_one_is_none() {
        let state = tempfile::tempdir().unwrap();
        let file = CommandFile::new(state.path());
        assert_eq!(file.load(), None);
        let before = [(ContainerName::new("app").unwrap(), "a".to_owned())].into();
        let given = Command { content: "x".to_owned(), before, times: 1 };
        file.store(&given).unwrap();
        assert_eq!(file.load(), Some(given));
        fs::write(state.path().join(FILE), "{").unwrap();
        assert_eq!(file.load(), None);
    }
}
