//! The content of a new version. Keys for ConfigMaps and keys for Secrets are kept apart.

use std::collections::BTreeMap;

use nudge_core::versions::{Contents, MAX_PARTS};
use nudge_protocol::block::{BLOCK_HEADER_BYTES, ENTRY_HEADER_BYTES, MAX_BLOCK_BYTES};
use nudge_protocol::limits::{MAX_KEYS, MAX_VALUE_BYTES};
use nudge_protocol::plural::counted;
use nudge_protocol::{Key, NameError};
use zeroize::Zeroizing;

use crate::files::{FilesError, keys_of_files};

/// The reason why a content can't become a version. No message holds a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// A key breaks the rule of keys.
    #[error(transparent)]
    Key(#[from] NameError),
    /// A value is too long.
    #[error(
        "the value of key {key} has {bytes} bytes, and the limit is {MAX_VALUE_BYTES}; divide it into several keys"
    )]
    ValueTooLarge {
        /// The key whose value is too long.
        key: String,
        /// The length of the value in bytes.
        bytes: usize,
    },
    /// The content has a key twice.
    #[error("key {0} is given twice; omit one of them")]
    Twice(String),
    /// Two files would become the same key.
    #[error(transparent)]
    SameKey(#[from] FilesError),
    /// There is no key.
    #[error("a version needs at least one key")]
    Empty,
    /// The content has too many keys, or too many bytes in all.
    #[error(
        "the version has {} and {bytes} bytes, and the limit is {MAX_KEYS} keys and {MAX_BLOCK_BYTES} bytes; divide it into \
         several configs",
        counted(*.keys, "key")
    )]
    TooLarge {
        /// The number of keys in the content.
        keys: usize,
        /// The size of the content in bytes.
        bytes: usize,
    },
    /// The version needs too many objects.
    #[error("the version needs {0} objects, and the limit is {MAX_PARTS}; divide it into several configs")]
    TooManyParts(usize),
}

/// The values of a new version by key.
#[derive(Default)]
pub struct Content {
    /// The values for ConfigMaps.
    pub open: Contents,
    /// The values for Secrets.
    pub secret: Contents,
}

impl Content {
    /// Adds a new key.
    pub fn add(&mut self, secret: bool, key: String, value: Vec<u8>) -> Result<(), ContentError> {
        let value = Zeroizing::new(value);
        Key::new(&key)?;
        if value.len() > MAX_VALUE_BYTES {
            return Err(ContentError::ValueTooLarge { key, bytes: value.len() });
        }
        if self.open.contains_key(&key) || self.secret.contains_key(&key) {
            return Err(ContentError::Twice(key));
        }
        let contents = if secret { &mut self.secret } else { &mut self.open };
        contents.insert(key, value);
        Ok(())
    }

    /// Adds the files of a tree, such as that of a repository or an artifact, by their paths.
    pub fn add_files(&mut self, secret: bool, files: BTreeMap<String, Zeroizing<Vec<u8>>>) -> Result<(), ContentError> {
        for (key, mut content) in keys_of_files(files)? {
            self.add(secret, key, std::mem::take(&mut *content))?;
        }
        Ok(())
    }

    /// Checks the limits of a version, which every agent enforces.
    pub fn check(&self) -> Result<(), ContentError> {
        let values = || self.open.iter().chain(&self.secret);
        let keys = values().count();
        let entry_bytes = |(key, value): (&String, &Zeroizing<Vec<u8>>)| ENTRY_HEADER_BYTES + key.len() + value.len();
        let bytes = BLOCK_HEADER_BYTES + values().map(entry_bytes).sum::<usize>();
        if keys == 0 {
            return Err(ContentError::Empty);
        }
        if keys > MAX_KEYS || bytes > MAX_BLOCK_BYTES {
            return Err(ContentError::TooLarge { keys, bytes });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_valid_and_unique() {
        let mut content = Content::default();
        assert!(content.check() == Err(ContentError::Empty));
        content.add(false, "lives".into(), b"3".to_vec()).unwrap();
        assert!(content.add(true, "lives".into(), b"4".to_vec()) == Err(ContentError::Twice("lives".into())));
        assert!(content.add(false, "nudge.configs".into(), Vec::new()).is_err());
        assert!(content.add(false, "a b".into(), Vec::new()).is_err());
        assert!(
            content
                .add(false, "big".into(), vec![0; MAX_VALUE_BYTES + 1])
                .unwrap_err()
                .to_string()
                .contains("divide it")
        );
        content.check().unwrap();
        for n in 0..3 {
            content.add(false, format!("k{n}"), vec![0; MAX_VALUE_BYTES]).unwrap();
        }
        assert!(content.check().unwrap_err().to_string().contains("several configs"));
    }

    #[test]
    fn files_have_their_paths_as_keys() {
        let of = |paths: &[&str]| {
            let files = paths.iter().map(|&path| (path.to_owned(), Zeroizing::new(b"1".to_vec()))).collect();
            let mut content = Content::default();
            content.add_files(false, files).map(|()| content.open.into_keys().collect::<Vec<_>>())
        };
        assert_eq!(of(&["app.yaml", "sub/b"]), Ok(vec!["app.yaml".to_owned(), "sub.b".to_owned()]));
        assert!(matches!(of(&["a.b", "a/b"]), Err(ContentError::SameKey(_))));
        assert!(matches!(of(&["a b"]), Err(ContentError::Key(_))));
        let mut content = Content::default();
        content.add(true, "a.b".to_owned(), Vec::new()).unwrap();
        let file = [("a/b".to_owned(), Zeroizing::default())].into();
        assert!(content.add_files(false, file) == Err(ContentError::Twice("a.b".into())));
    }
}
