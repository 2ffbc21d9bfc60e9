//! The merge of the contents of a pod's configs into one dictionary, and the keys that Nudge adds.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use nudge_protocol::limits::{MAX_CONFIGS, MAX_KEYS};
use nudge_protocol::status::Overlap;
use nudge_protocol::{ConfigName, reserved};

use super::{ConfigView, Dictionary, EtagKey, TooLarge, Value, VersionContent, is_binary, render_json};

impl Dictionary {
    /// Merges `contents` and renders the result. If two contents have the same key, the later one wins.
    pub fn merge(contents: &[Arc<VersionContent>], etags: &EtagKey) -> Result<Self, TooLarge> {
        if contents.len() > MAX_CONFIGS {
            return Err(TooLarge::Configs(contents.len()));
        }
        let mut owners: BTreeMap<&str, (&Value, Vec<&ConfigName>)> = BTreeMap::new();
        for content in contents {
            for (key, value) in content.values() {
                let owner = owners.entry(key.as_str()).or_insert((value, Vec::new()));
                owner.0 = value;
                owner.1.push(content.config());
            }
        }
        if owners.len() > MAX_KEYS {
            return Err(TooLarge::Keys(owners.len()));
        }
        let overlaps = owners
            .iter()
            .filter_map(|(key, (_, configs))| {
                let (winner, hidden) = configs.split_last()?;
                (!hidden.is_empty()).then(|| Overlap {
                    key: (*key).to_owned(),
                    winner: (*winner).clone(),
                    hidden: hidden.iter().map(|&name| name.clone()).collect(),
                })
            })
            .collect();

        let reserved = reserved_values(contents, &owners);
        let mut entries: Vec<(&str, &Value)> = owners.iter().map(|(key, (value, _))| (*key, *value)).collect();
        entries.extend(reserved.iter().map(|(key, value)| (key.as_str(), value)));
        entries.sort_unstable_by_key(|(key, _)| *key);

        let (json, entries) = render_json(&entries)?;
        Ok(Self {
            etag: etags.etag(&json),
            json: Bytes::from_owner(json),
            entries,
            contents: contents.to_vec(),
            configs: contents.iter().map(|content| view(content)).collect(),
            overlaps,
            env: OnceLock::new(),
        })
    }
}

fn view(content: &VersionContent) -> ConfigView {
    ConfigView {
        name: content.config().clone(),
        version: content.version().clone(),
        digest: content.digest().to_owned(),
        keys: content.values().len(),
        bytes: content.bytes(),
    }
}

/// Returns the keys that Nudge adds, see [`reserved`].
fn reserved_values(
    contents: &[Arc<VersionContent>],
    owners: &BTreeMap<&str, (&Value, Vec<&ConfigName>)>,
) -> Vec<(String, Value)> {
    let text = |text: &str| Value::from(text.as_bytes());
    let mut values = Vec::with_capacity(contents.len() + 2);
    let versions: Vec<String> =
        contents.iter().map(|content| format!("{}={}", content.config(), content.version())).collect();
    values.push((reserved::CONFIGS.to_owned(), text(&versions.join(","))));
    for content in contents {
        values.push((reserved::version_key(content.config().as_str()), text(content.version().as_str())));
    }
    let binary: Vec<&str> =
        owners.iter().filter(|(_, (value, _))| is_binary(value.as_bytes())).map(|(key, _)| *key).collect();
    if !binary.is_empty() {
        values.push((reserved::BINARY.to_owned(), text(&binary.join(","))));
    }
    values
}
