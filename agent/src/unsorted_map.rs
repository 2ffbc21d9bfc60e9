//! Maps of few entries.

use std::collections::BTreeMap;

/// Collects entries by inserting them one by one. `collect` sorts them first, which is 5 KB of code for each type.
pub(crate) fn map<K: Ord, V>(entries: impl IntoIterator<Item = (K, V)>) -> BTreeMap<K, V> {
    let mut map = BTreeMap::new();
    map.extend(entries);
    map
}
