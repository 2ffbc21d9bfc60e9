//! The contents that this pod has run. Its containers are asked about other contents only, so that none of them can
//! prevent a return.

use serde::{Deserialize, Serialize};

use crate::files::StateFile;

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

    /// Reads the record. If that fails, containers are asked about every version.
    pub fn load(file: &StateFile) -> Self {
        file.load("record of versions not read; containers are asked about earlier versions again")
    }

    /// Writes the record.
    pub fn store(&self, file: &StateFile) {
        file.store_or_warn(self, "record of versions not stored; a restart of this agent asks about them again");
    }
}

#[cfg(test)]
mod tests {
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
}
