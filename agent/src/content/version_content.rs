//! The content of one version of one config.

use std::collections::{BTreeMap, BTreeSet};

use nudge_protocol::block::Stored;
use nudge_protocol::hex::hex;
use nudge_protocol::volumes::ObjectKind;
use nudge_protocol::{ConfigName, Key, VersionName};
use ring::digest;

use super::Value;

/// The keys and values of one version, with their digest. Immutable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionContent {
    config: ConfigName,
    version: VersionName,
    values: BTreeMap<Key, Value>,
    /// The keys that Secrets have.
    secret_keys: BTreeSet<Key>,
    digest: String,
    bytes: usize,
}

impl VersionContent {
    /// Creates a content of these keys and values.
    pub fn new(config: ConfigName, version: VersionName, values: BTreeMap<Key, Value>) -> Self {
        let digest = digest_of(&values);
        let bytes = values.values().map(|value| value.as_bytes().len()).sum();
        Self { config, version, values, secret_keys: BTreeSet::new(), digest, bytes }
    }

    /// Takes over the keys and values of ConfigMaps and Secrets.
    pub fn of_objects(config: ConfigName, version: VersionName, stored: BTreeMap<Key, Stored<Value>>) -> Self {
        let is_secret = |(_, stored): &(&Key, &Stored<Value>)| stored.kind == ObjectKind::Secret;
        let secret_keys = stored.iter().filter(is_secret).map(|(key, _)| key.clone()).collect();
        let values = stored.into_iter().map(|(key, stored)| (key, stored.value)).collect();
        Self { secret_keys, ..Self::new(config, version, values) }
    }

    /// Returns the config that the version belongs to.
    pub fn config(&self) -> &ConfigName {
        &self.config
    }

    /// Returns the version's name.
    pub fn version(&self) -> &VersionName {
        &self.version
    }

    /// Returns the keys and values, sorted by key.
    pub fn values(&self) -> &BTreeMap<Key, Value> {
        &self.values
    }

    /// Returns the keys and values of objects of one kind, sorted by key.
    pub fn values_of(&self, kind: ObjectKind) -> impl Iterator<Item = (&Key, &Value)> {
        self.values.iter().filter(move |(key, _)| self.secret_keys.contains(*key) == (kind == ObjectKind::Secret))
    }

    /// Returns `sha256:` and hex digits: equal for equal keys and values, whatever the version is called.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns the length of all values together, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Computes the SHA-256 over, for every key in byte order, the key's length as 8 bytes big-endian, the key, the value's
/// length as 8 bytes big-endian, and the value. The lengths make the encoding unambiguous.
pub(crate) fn digest_of(values: &BTreeMap<Key, Value>) -> String {
    let mut hash = digest::Context::new(&digest::SHA256);
    let mut add = |bytes: &[u8]| {
        hash.update(&(bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    for (key, value) in values {
        add(key.as_str().as_bytes());
        add(value.as_bytes());
    }
    format!("sha256:{}", hex(hash.finish().as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(pairs: &[(&str, &str)]) -> VersionContent {
        let values = pairs.iter().map(|(key, value)| (Key::new(key).unwrap(), Value::from(value.as_bytes()))).collect();
        VersionContent::new(ConfigName::new("shop").unwrap(), VersionName::new("1").unwrap(), values)
    }

    #[test]
    fn the_digest_depends_on_where_a_key_ends_and_its_value_begins() {
        assert_ne!(content(&[("ab", "c")]).digest(), content(&[("a", "bc")]).digest());
        assert_ne!(content(&[("a", ""), ("b", "")]).digest(), content(&[("a", "b")]).digest());
        assert_eq!(content(&[("a", "1"), ("b", "2")]).digest(), content(&[("b", "2"), ("a", "1")]).digest());
    }

    #[test]
    fn the_digest_of_nothing_is_that_of_the_empty_input() {
        let known = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(content(&[]).digest(), known);
    }
}
