//! The content of a version that is to be made: what is open and what is secret. Pure.

use nudge_core::versions::Contents;
use nudge_protocol::Key;
use nudge_protocol::block::MAX_BLOCK_BYTES;
use nudge_protocol::limits::{MAX_KEYS, MAX_VALUE_BYTES};
use zeroize::Zeroizing;

/// See the module's text.
#[derive(Default)]
pub(super) struct Content {
    /// For ConfigMaps.
    pub(super) open: Contents,
    /// For Secrets.
    pub(super) secret: Contents,
}

impl Content {
    /// Adds a key that is not there yet.
    pub(super) fn add(&mut self, secret: bool, key: String, value: Vec<u8>) -> Result<(), String> {
        let value = Zeroizing::new(value);
        Key::new(&key).map_err(|error| error.to_string())?;
        if value.len() > MAX_VALUE_BYTES {
            return Err(format!(
                "key {key} has {} bytes, and one value has {MAX_VALUE_BYTES} at most: divide it into several keys",
                value.len()
            ));
        }
        if self.open.contains_key(&key) || self.secret.contains_key(&key) {
            return Err(format!("key {key} is given twice; leave one of them out"));
        }
        let into = if secret { &mut self.secret } else { &mut self.open };
        into.insert(key, value);
        Ok(())
    }

    /// What the whole must keep to, or no pod could take it.
    pub(super) fn check(&self) -> Result<(), String> {
        let all = || self.open.iter().chain(&self.secret);
        let keys = all().count();
        let bytes: usize = all().map(|(key, value)| 6 + key.len() + value.len()).sum::<usize>() + 4;
        if keys == 0 {
            return Err("a version has at least one key; use --from-file, --from-literal or --from-env-file".to_owned());
        }
        if keys > MAX_KEYS || bytes > MAX_BLOCK_BYTES {
            return Err(format!(
                "this version would have {keys} keys and {bytes} bytes; {MAX_KEYS} keys and {MAX_BLOCK_BYTES} bytes are allowed: divide \
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
    fn a_key_comes_once_and_is_one() {
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
