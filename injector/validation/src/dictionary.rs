//! The content that rules judge: borrowed keys and values, and the parsed values, which are wiped from memory.

use std::collections::BTreeMap;
use std::fmt;

use nudge_api::PartKind;
use serde_json::Value;
use zeroize::Zeroize as _;

/// A value of a version.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DictionaryEntry<'a> {
    /// The bytes of the value.
    pub value: &'a [u8],
    /// Whether the value is a Secret's. Messages about it then show nothing of its structure that the rules do not
    /// name.
    pub secret: bool,
}

impl fmt::Debug for DictionaryEntry<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Entry({} bytes)", self.value.len())
    }
}

/// All values of a version by their keys.
pub type Dictionary<'a> = BTreeMap<&'a str, DictionaryEntry<'a>>;

/// Returns the dictionary of a version from its parts.
pub fn dictionary_of<'a, V: AsRef<[u8]> + 'a>(
    parts: impl IntoIterator<Item = (PartKind, &'a BTreeMap<String, V>)>,
) -> Dictionary<'a> {
    let entries = parts.into_iter().flat_map(|(kind, content)| {
        let secret = kind == PartKind::Secret;
        content.iter().map(move |(key, value)| (key.as_str(), DictionaryEntry { value: value.as_ref(), secret }))
    });
    entries.collect()
}

/// A parsed value. It may be a Secret's, so it is wiped on drop and never shown.
#[derive(Clone, Default)]
pub(crate) struct Parsed(pub(crate) Value);

impl fmt::Debug for Parsed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Parsed")
    }
}

impl Drop for Parsed {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

/// Overwrites all text except the names in objects, which can't be changed in place.
fn wipe(value: &mut Value) {
    match value {
        Value::String(text) => text.zeroize(),
        Value::Array(items) => items.iter_mut().for_each(wipe),
        Value::Object(entries) => entries.values_mut().for_each(wipe),
        Value::Number(_) => *value = Value::Null,
        Value::Null | Value::Bool(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_never_shown() {
        let entry = DictionaryEntry { value: b"hunter2", secret: true };
        let shown = format!("{entry:?} {:?}", Parsed(json!({"a": "hunter2"})));
        assert_eq!(shown, "Entry(7 bytes) Parsed");
    }

    #[test]
    fn text_is_wiped_at_any_depth() {
        let mut value = json!({"a": ["x", {"b": "y", "c": 1}], "d": null});
        wipe(&mut value);
        assert_eq!(value, json!({"a": ["", {"b": "", "c": null}], "d": null}));
    }
}
