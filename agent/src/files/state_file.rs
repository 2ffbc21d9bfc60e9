//! A record of the agent in its state folder: what it must know when it starts again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::atomic_file::write_file;

/// A record as a file of JSON, for this user only.
#[derive(Clone, Debug)]
pub struct StateFile {
    path: PathBuf,
}

impl StateFile {
    /// Returns the file with this name in the state folder.
    pub fn new(state: &Path, name: &str) -> Self {
        Self { path: state.join(name) }
    }

    /// Reads the record. If it can't be read, `fault` is logged, and says what follows.
    pub fn load<T: DeserializeOwned + Default>(&self, fault: &str) -> T {
        let record = match fs::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return T::default(),
            bytes => bytes.and_then(|bytes| Ok(serde_json::from_slice(&bytes)?)),
        };
        record.unwrap_or_else(|error| {
            tracing::warn!(%error, path = %self.path.display(), "{fault}");
            T::default()
        })
    }

    /// Writes the record.
    pub fn store(&self, record: &impl Serialize) -> io::Result<()> {
        let bytes = serde_json::to_vec(record)?;
        write_file(&self.path, 0o600, |file| file.write_all(&bytes))
    }

    /// Writes the record. If that fails, `fault` is logged, and says what follows.
    pub fn store_or_warn(&self, record: &impl Serialize, fault: &str) {
        if let Err(error) = self.store(record) {
            tracing::warn!(%error, path = %self.path.display(), "{fault}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back_and_a_damaged_one_is_empty() {
        let state = tempfile::tempdir().unwrap();
        let file = StateFile::new(state.path(), "record");
        assert!(file.load::<Vec<u32>>("unread").is_empty());
        file.store(&[1, 2]).unwrap();
        assert_eq!(file.load::<Vec<u32>>("unread"), vec![1, 2]);
        fs::write(state.path().join("record"), "[").unwrap();
        assert_eq!(file.load::<Option<Vec<u32>>>("unread"), None);
        file.store_or_warn(&[3], "not stored");
        assert_eq!(file.load::<Option<Vec<u32>>>("unread"), Some(vec![3]));
    }
}
