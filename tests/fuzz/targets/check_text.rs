//! The reason of a container that refuses a version: it is shown as one bounded line without values.
//!
//! The input is a value behind its length, and the text.
#![cfg_attr(fuzzing, no_main)]

use std::collections::BTreeMap;
use std::sync::Arc;

use libfuzzer_sys::{Corpus, fuzz_target};
use nudge_agent::check::displayable_reason;
use nudge_agent::content::{Dictionary, EtagKey, Value, VersionContent};
use nudge_protocol::{ConfigName, Key, VersionName};

fuzz_target!(|bytes: &[u8]| -> Corpus {
    let Some((&length, rest)) = bytes.split_first() else { return Corpus::Reject };
    let Some((value, text)) = rest.split_at_checked(length.into()) else { return Corpus::Reject };
    let shown = displayable_reason(Some(text), &[&dictionary(value)]);
    assert!(!shown.is_empty() && shown.len() <= 512 && !shown.contains(char::is_control));
    // White space and quotes around a value are no part of it, and a shorter one counts as a word only. What the agent
    // says itself is no leak. Of bytes that are no text nothing can be found in what is shown: other ones look the
    // same.
    let Ok(value) = std::str::from_utf8(value) else { return Corpus::Keep };
    let value = value.trim_matches(|letter: char| letter.is_ascii_whitespace() || "\"'".contains(letter));
    assert!(value.len() < 8 || !shown.contains(value) || shown.starts_with("(it"), "{shown}");
    Corpus::Keep
});

fn dictionary(value: &[u8]) -> Dictionary {
    let values = BTreeMap::from([(Key::new("key").unwrap(), Value::from(value))]);
    let content = VersionContent::new(ConfigName::new("c").unwrap(), VersionName::new("1").unwrap(), values);
    Dictionary::merge(&[Arc::new(content)], &EtagKey::new(b"")).unwrap()
}
