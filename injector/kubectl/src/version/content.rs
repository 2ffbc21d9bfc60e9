//! The content of a new version, with the keys for ConfigMaps and for Secrets apart.

use nudge_core::versions::Contents;
use nudge_protocol::Key;
use nudge_protocol::block::MAX_BLOCK_BYTES;
use nudge_protocol::limits::{MAX_KEYS, MAX_VALUE_BYTES};
use zeroize::Zeroizing;

/// Values by key.
#[derive(Default)]
pub(crate) struct Content {
    /// For ConfigMaps.
    pub(crate) open: Contents,
    /// For Secrets.
    pub(crate) secret: Contents,
}

impl Content {
    /// Adds a new key.
    pub(crate) fn add(&mut self, secret: bool, key: String, value: Vec<u8>) -> Result<(), String> {
        let value = Zeroizing::new(value);
        Key::new(&key).map_err(|error| error.to_string())?;
        if value.len() > MAX_VALUE_BYTES {
            return Err(format!(
                "the value of key {key} has {} bytes, and the limit is {MAX_VALUE_BYTES}; divide it into several keys",
                value.len()
            ));
        }
        if self.open.contains_key(&key) || self.secret.contains_key(&key) {
            return Err(format!("key {key} is given twice; omit one of them"));
        }
        let into = if secret { &mut self.secret } else { &mut self.open };
        into.insert(key, value);
        Ok(())
    }

    /// Checks the limits of a version, which every agent enforces.
    pub(crate) fn check(&self) -> Result<(), String> {
        let all = || self.open.iter().chain(&self.secret);
        let keys = all().count();
        let bytes: usize = all().map(|(key, value)| 6 + key.len() + value.len()).sum::<usize>() + 4;
        if keys == 0 {
            return Err(
                "a version needs at least one key; use --from-file, --from-literal or --from-env-file".to_owned()
            );
        }
        if keys > MAX_KEYS || bytes > MAX_BLOCK_BYTES {
            return Err(format!(
                "the version has {keys} keys and {bytes} bytes, and the limit is {MAX_KEYS} keys and {MAX_BLOCK_BYTES} bytes; divide \
                 it into several configs"
            ));
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
        assert!(content.check().unwrap_err().contains("at least one key"));
        content.add(false, "lives".into(), b"3".to_vec()).unwrap();
        assert!(content.add(true, "lives".into(), b"4".to_vec()).unwrap_err().contains("given twice"));
        assert!(content.add(false, "nudge.configs".into(), Vec::new()).is_err());
        assert!(content.add(false, "a b".into(), Vec::new()).is_err());
        assert!(content.add(false, "big".into(), vec![0; MAX_VALUE_BYTES + 1]).unwrap_err().contains("divide it"));
        content.check().unwrap();
        for n in 0..3 {
            content.add(false, format!("k{n}"), vec![0; MAX_VALUE_BYTES]).unwrap();
        }
        assert!(content.check().unwrap_err().contains("several configs"));
    }
}
