//! Values come out of the dictionary as they went in: as JSON, one by one, for a shell, and in events about changes.
//! The input is blocks with an empty line between them; a block is a line `CONFIG KEY` and then the value, whatever it
//! is.
#![cfg_attr(fuzzing, no_main)]

use std::collections::BTreeMap;
use std::sync::Arc;

use libfuzzer_sys::{Corpus, fuzz_target};
use nudge_agent::content::{Dictionary, Entry, EtagKey, NotExpressible, Value, VersionContent, changed_keys};
use nudge_protocol::{ConfigName, Key, VersionName, reserved};

type Values = BTreeMap<String, Vec<u8>>;

fuzz_target!(|bytes: &[u8]| -> Corpus {
    let configs = configs(bytes);
    if configs.is_empty() || configs.len() > 8 {
        return Corpus::Reject;
    }
    let contents: Vec<Arc<VersionContent>> = configs.iter().map(content).collect();
    let merged = merge(&contents);
    let model = model(&configs);
    assert_values(&merged, &model);
    assert_json(&merged, &model);
    assert_env(&merged, &model);
    assert_changes(&contents, &configs);
    assert_eq!(merged.etag(), merge(&contents).etag());
    for overlap in merged.overlaps() {
        let having = configs.iter().filter(|(_, values)| values.contains_key(&overlap.key));
        let having: Vec<&ConfigName> = having.map(|(name, _)| name).collect();
        let reported: Vec<&ConfigName> = overlap.hidden.iter().chain([&overlap.winner]).collect();
        assert_eq!(having, reported);
    }
    Corpus::Keep
});

/// The configs in the order in which they first appear.
fn configs(bytes: &[u8]) -> Vec<(ConfigName, Values)> {
    let mut configs: Vec<(ConfigName, Values)> = Vec::new();
    let mut rest = Some(bytes);
    while let Some(bytes) = rest {
        let end = bytes.windows(2).position(|two| two == b"\n\n");
        let block = &bytes[..end.unwrap_or(bytes.len())];
        rest = end.map(|end| &bytes[end + 2..]);
        let line = block.iter().position(|&byte| byte == b'\n').unwrap_or(block.len());
        let names = std::str::from_utf8(&block[..line]).ok().and_then(|names| names.split_once(' '));
        let Some((config, key)) = names else { continue };
        let (Ok(config), Ok(key)) = (ConfigName::new(config), Key::new(key)) else { continue };
        let value = block.get(line + 1..).unwrap_or_default().to_vec();
        let at = configs.iter().position(|(name, _)| *name == config).unwrap_or_else(|| {
            configs.push((config, Values::new()));
            configs.len() - 1
        });
        configs[at].1.insert(key.to_string(), value);
    }
    configs
}

fn content((config, values): &(ConfigName, Values)) -> Arc<VersionContent> {
    let values = values.iter().map(|(key, value)| (Key::new(key).unwrap(), Value::from(&value[..]))).collect();
    Arc::new(VersionContent::new(config.clone(), VersionName::new("1").unwrap(), values))
}

fn merge(contents: &[Arc<VersionContent>]) -> Dictionary {
    Dictionary::merge(contents, &EtagKey::new(b"fuzz")).unwrap()
}

/// What a reader should see, in the plainest words.
fn model(configs: &[(ConfigName, Values)]) -> Values {
    let mut model = Values::new();
    for (_, values) in configs {
        model.extend(values.clone());
    }
    let binary: Vec<String> =
        model.iter().filter(|(_, value)| std::str::from_utf8(value).is_err()).map(|(key, _)| key.clone()).collect();
    if !binary.is_empty() {
        model.insert(reserved::BINARY.to_owned(), binary.join(",").into_bytes());
    }
    let named: Vec<String> = configs.iter().map(|(name, _)| format!("{name}=1")).collect();
    model.insert(reserved::CONFIGS.to_owned(), named.join(",").into_bytes());
    for (name, _) in configs {
        model.insert(format!("nudge.config.{name}.version"), b"1".to_vec());
    }
    model
}

fn assert_values(merged: &Dictionary, model: &Values) {
    let keys: Vec<&str> = merged.entries().iter().map(Entry::key).collect();
    assert_eq!(keys, model.keys().map(String::as_str).collect::<Vec<_>>());
    for (key, value) in model {
        assert_eq!(merged.value(key).unwrap(), value);
    }
    assert_eq!(merged.value("nudge."), None);
}

fn assert_json(merged: &Dictionary, model: &Values) {
    let json: BTreeMap<String, String> = serde_json::from_slice(&merged.json()).unwrap();
    assert_eq!(json.len(), model.len());
    for (key, value) in model {
        assert_eq!(json[key].as_bytes(), shown(value));
    }
}

/// Text as it is, anything else as base64 (RFC 4648, section 4).
fn shown(value: &[u8]) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    if std::str::from_utf8(value).is_ok() {
        return value.to_vec();
    }
    let mut text = Vec::new();
    for three in value.chunks(3) {
        let bits = three.iter().fold(0, |bits, &byte| bits << 8 | usize::from(byte)) << (8 * (3 - three.len()));
        let digit = |at: usize| if at <= three.len() { ALPHABET[bits >> (18 - 6 * at) & 63] } else { b'=' };
        text.extend((0..4).map(digit));
    }
    text
}

fn assert_env(merged: &Dictionary, model: &Values) {
    let is_name = |key: &str| {
        key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') && !key.as_bytes()[0].is_ascii_digit()
    };
    let own = |key: &str| key == reserved::ENV_CONFIGS || key == reserved::ENV_BINARY;
    match merged.env() {
        Ok(text) => {
            let mut expected = Values::new();
            for (key, value) in model {
                let name = match key.as_str() {
                    reserved::CONFIGS => reserved::ENV_CONFIGS,
                    reserved::BINARY => reserved::ENV_BINARY,
                    key if key.starts_with(reserved::PREFIX) => continue,
                    key => key,
                };
                assert!(is_name(name));
                expected.insert(name.to_owned(), shown(value));
            }
            assert_eq!(sourced(&text), expected);
        }
        Err(NotExpressible::Key(key)) => assert!(model.contains_key(&key) && !is_name(&key)),
        Err(NotExpressible::Reserved(key)) => assert!(model.contains_key(&key) && own(&key)),
        Err(NotExpressible::Nul(key)) => assert!(model[&key].contains(&0)),
        Err(NotExpressible::TooLarge(bytes)) => assert!(bytes > 4 << 20),
    }
}

/// Reads what a shell would read, by the two rules of quoting that the format uses; whatever else stands there is a
/// panic.
fn sourced(mut text: &[u8]) -> Values {
    let mut variables = Values::new();
    while !text.is_empty() {
        let equals = text.iter().position(|&byte| byte == b'=').unwrap();
        let name = String::from_utf8(text[..equals].to_vec()).unwrap();
        text = &text[equals + 1..];
        let mut value = Vec::new();
        loop {
            match text {
                [b'\'', rest @ ..] => {
                    let end = rest.iter().position(|&byte| byte == b'\'').unwrap();
                    value.extend_from_slice(&rest[..end]);
                    text = &rest[end + 1..];
                }
                [b'\\', b'\'', rest @ ..] => {
                    value.push(b'\'');
                    text = rest;
                }
                [b'\n', rest @ ..] => {
                    text = rest;
                    break;
                }
                _ => panic!("outside of quotes: {}", text.escape_ascii()),
            }
        }
        assert!(!value.contains(&0));
        assert!(variables.insert(name, value).is_none(), "no variable is set twice");
    }
    variables
}

/// The last config arrives: which keys are reported as changed.
fn assert_changes(contents: &[Arc<VersionContent>], configs: &[(ConfigName, Values)]) {
    let before = configs.len() - 1;
    let (old, new) = (merge(&contents[..before]), merge(contents));
    let (was, is) = (model(&configs[..before]), model(configs));
    let mut expected: Vec<&String> = was.keys().chain(is.keys()).filter(|key| was.get(*key) != is.get(*key)).collect();
    expected.retain(|key| !key.starts_with(reserved::PREFIX));
    expected.sort();
    expected.dedup();
    assert_eq!(changed_keys(&old, &new).iter().collect::<Vec<_>>(), expected);
    assert!(changed_keys(&new, &new).is_empty());
}
