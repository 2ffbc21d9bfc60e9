//! Which keys differ between two dictionaries.

use std::cmp::Ordering;

use super::Dictionary;

/// The user's keys that were added, removed, or have another value, in order. Nudge's own keys, which change with every version, are
/// left out.
pub fn changed_keys(old: &Dictionary, new: &Dictionary) -> Vec<String> {
    let mut changed = Vec::new();
    let mut left = old.entries().iter().filter(|entry| !entry.is_reserved()).peekable();
    let mut right = new.entries().iter().filter(|entry| !entry.is_reserved()).peekable();
    loop {
        let order = match (left.peek(), right.peek()) {
            (None, None) => return changed,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(one), Some(two)) => one.key().cmp(two.key()),
        };
        let one = if order == Ordering::Greater { None } else { left.next() };
        let two = if order == Ordering::Less { None } else { right.next() };
        let same = match (one, two) {
            (Some(one), Some(two)) => one.is_binary() == two.is_binary() && old.literal(one) == new.literal(two),
            _ => false,
        };
        if let (false, Some(entry)) = (same, one.or(two)) {
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
