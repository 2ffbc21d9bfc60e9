//! Which contents this pod has run. Its containers are asked about others only, so that none of them is in the way of a return.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::private_file::write_whole;

/// Its name in the state folder.
const FILE: &str = "ran";
/// The most contents that are remembered.
const MAX_CONTENTS: usize = 64;

/// Digests of contents, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ran(Vec<String>);

impl Ran {
    /// Returns whether the pod has run it.
    pub fn has(&self, sha256: &str) -> bool {
        self.0.iter().any(|known| known == sha256)
    }

    /// The pod runs it.
    pub fn add(&mut self, sha256: &str) {
        self.0.retain(|known| known != sha256);
        self.0.push(sha256.to_owned());
        let most = self.0.len().saturating_sub(MAX_CONTENTS);
        self.0.drain(..most);
    }
}

/// The file of one agent.
#[derive(Clone, Debug)]
pub struct RanFile {
    path: PathBuf,
}

impl RanFile {
    /// The file in the state folder.
    pub fn new(state: &Path) -> Self {
        Self { path: state.join(FILE) }
    }

    /// Reads the file. If that fails, containers are asked about every version.
    pub fn load(&self) -> Ran {
        let read = match fs::read(&self.path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Ran::default()),
            Err(error) => Err(error),
        };
        read.unwrap_or_else(|error| {
            let path = self.path.display();
            tracing::warn!(%error, %path, "record of versions not read; containers are asked about earlier versions again");
            Ran::default()
        })
    }

    /// Writes the file.
    pub fn store(&self, ran: &Ran) {
        let written = serde_json::to_vec(ran)
            .map_err(io::Error::from)
            .and_then(|bytes| write_whole(&self.path, 0o600, |file| file.write_all(&bytes)));
        if let Err(error) = written {
            let path = self.path.display();
            tracing::warn!(%error, %path, "record of versions not stored; a restart of this agent asks about them again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_contents_are_remembered() {
        let mut ran = Ran::default();
        for number in 0..=MAX_CONTENTS {
            ran.add("first");
            ran.add(&number.to_string());
        }
        assert!(ran.has("first") && ran.has("64") && ran.has("2") && !ran.has("1"), "{ran:?}");
        assert_eq!(ran.0.len(), MAX_CONTENTS);
    }

    #[test]
    fn the_record_is_read_back_and_a_damaged_one_is_empty() {
        let state = tempfile::tempdir().unwrap();
        let file = RanFile::new(state.path());
        assert_eq!(file.load(), Ran::default());
        let mut ran = Ran::default();
        ran.add("one");
        file.store(&ran);
        assert_eq!(file.load(), ran);
        fs::write(state.path().join(FILE), "{").unwrap();
        assert_eq!(file.load(), Ran::default());
    }
}
