//! The contents that this pod has run. Its containers are asked about other contents only, so that none of them can
//! prevent a return.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::files::atomic_file::{read_json, write_json};

/// The name of the file in the state folder.
const FILE_NAME: &str = "ran";
/// The maximum number of contents that are remembered.
const MAX_CONTENTS: usize = 64;

/// The digests of contents, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RanContents(Vec<String>);

impl RanContents {
    /// Returns whether the pod has run the content with this digest.
    pub fn contains(&self, sha256: &str) -> bool {
        self.0.iter().any(|digest| digest == sha256)
    }

    /// Adds the digest of a content that the pod runs.
    pub fn add(&mut self, sha256: &str) {
        self.0.retain(|digest| digest != sha256);
        self.0.push(sha256.to_owned());
        let excess = self.0.len().saturating_sub(MAX_CONTENTS);
        self.0.drain(..excess);
    }
}

/// The file with the contents that one agent has run.
#[derive(Clone, Debug)]
pub struct RanFile {
    path: PathBuf,
}

impl RanFile {
    /// Returns the file in this state folder.
    pub fn new(state: &Path) -> Self {
        Self { path: state.join(FILE_NAME) }
    }

    /// Reads the file. If that fails, containers are asked about every version.
    pub fn load(&self) -> RanContents {
        let ran = read_json(&self.path).unwrap_or_else(|error| {
            let path = self.path.display();
            tracing::warn!(%error, %path, "record of versions not read; containers are asked about earlier versions again");
            None
        });
        ran.unwrap_or_default()
    }

    /// Writes the file.
    pub fn store(&self, ran: &RanContents) {
        if let Err(error) = write_json(&self.path, ran) {
            let path = self.path.display();
            tracing::warn!(%error, %path, "record of versions not stored; a restart of this agent asks about them again");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_newest_contents_are_remembered() {
        let mut ran = RanContents::default();
        for number in 0..=MAX_CONTENTS {
            ran.add("first");
            ran.add(&number.to_string());
        }
        assert!(ran.contains("first") && ran.contains("64") && ran.contains("2") && !ran.contains("1"), "{ran:?}");
        assert_eq!(ran.0.len(), MAX_CONTENTS);
    }

    #[test]
    fn the_record_is_read_back_and_a_damaged_one_is_empty() {
        let state = tempfile::tempdir().unwrap();
        let file = RanFile::new(state.path());
        assert_eq!(file.load(), RanContents::default());
        let mut ran = RanContents::default();
        ran.add("one");
        file.store(&ran);
        assert_eq!(file.load(), ran);
        fs::write(state.path().join(FILE_NAME), "{").unwrap();
        assert_eq!(file.load(), RanContents::default());
    }
}
