//! Finds the keys that differ between two dictionaries.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::Dictionary;

/// Returns the keys that were added, removed, or have another value in any of the configs, though another config may
/// hide them in the dictionary: each config has files of its own.
pub fn changed_object_keys(old: &Dictionary, new: &Dictionary) -> Vec<String> {
    let values = |dictionary: &Dictionary| {
        let mut values = BTreeMap::new();
        for content in dictionary.contents() {
            values.extend(
                content.values().iter().map(|(key, value)| ((content.config().clone(), key.clone()), value.clone())),
            );
        }
        values
    };
    let (old, new) = (values(old), values(new));
    let names = old.keys().chain(new.keys()).collect::<BTreeSet<_>>();
    let changed = names.into_iter().filter(|name| old.get(name) != new.get(name));
    changed.map(|(_, key)| key.to_string()).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns the user's keys that were added, removed, or have another value, in order. Nudge's own keys, which change
/// with every version, are left out.
pub fn changed_keys(old: &Dictionary, new: &Dictionary) -> Vec<String> {
    let mut changed = Vec::new();
    let mut left = old.entries().iter().filter(|entry| !entry.is_reserved()).peekable();
    let mut right = new.entries().iter().filter(|entry| !entry.is_reserved()).peekable();
    loop {
        let order = match (left.peek(), right.peek()) {
            (None, None) => return changed,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(left), Some(right)) => left.key().cmp(right.key()),
        };
        let before = if order == Ordering::Greater { None } else { left.next() };
        let after = if order == Ordering::Less { None } else { right.next() };
        let is_same = before.zip(after).is_some_and(|(before, after)| {
            before.is_binary() == after.is_binary() && old.literal(before) == new.literal(after)
        });
        if let Some(entry) = before.or(after).filter(|_| !is_same) {
            changed.push(entry.key().to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use nudge_protocol::{ConfigName, Key, VersionName};
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    use super::*;
    use crate::content::{EtagKey, Value, VersionContent};

    fn dictionary(values: &BTreeMap<String, Vec<u8>>) -> Dictionary {
        let values = values.iter().map(|(key, value)| (Key::new(key).unwrap(), Value::from(&value[..]))).collect();
        let version = VersionName::new("1").unwrap();
        let content = VersionContent::new(ConfigName::new("c").unwrap(), version, values);
        Dictionary::merge(&[Arc::new(content)], &EtagKey::new(b"")).unwrap()
    }

    #[test]
    fn a_key_that_another_config_hides_changes_in_its_own() {
        let content = |config: &str, value: &str| {
            let values = BTreeMap::from([(Key::new("a").unwrap(), Value::from(value.as_bytes()))]);
            Arc::new(VersionContent::new(ConfigName::new(config).unwrap(), VersionName::new("1").unwrap(), values))
        };
        let merged = |first: &str| {
            Dictionary::merge(&[content("first", first), content("last", "x")], &EtagKey::new(b"")).unwrap()
        };
        let (old, new) = (merged("1"), merged("2"));
        assert_eq!((changed_keys(&old, &new), changed_object_keys(&old, &new)), (vec![], vec!["a".to_owned()]));
        assert!(changed_object_keys(&old, &old).is_empty());
    }

    proptest! {
        #[test]
        fn finds_exactly_the_keys_whose_values_differ(
            old in btree_map("[a-f]", vec(any::<u8>(), 0..3), 0..6),
            new in btree_map("[a-f]", vec(any::<u8>(), 0..3), 0..6),
        ) {
            let mut expected: Vec<String> = old.keys().chain(new.keys())
                .filter(|key| old.get(*key) != new.get(*key)).cloned().collect();
            expected.sort();
            expected.dedup();
            prop_assert_eq!(changed_keys(&dictionary(&old), &dictionary(&new)), expected);
        }
    }

    #[test]
    fn text_that_equals_the_base64_of_bytes_is_another_value() {
        let binary = BTreeMap::from([("k".to_owned(), vec![0xff, 0x00])]);
        let text = BTreeMap::from([("k".to_owned(), b"/wA=".to_vec())]);
        assert_eq!(changed_keys(&dictionary(&binary), &dictionary(&text)), ["k"]);
    }
}
