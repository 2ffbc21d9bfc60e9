//! The dictionary that a pod sees: its configs merged in order, and the keys of Nudge.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nudge_api::PartKind;
use nudge_protocol::reserved;

use crate::version::stored::ContentsByKind;

/// The text in place of a secret value.
const MASK: &str = "***";

/// One config with the version to show.
pub(crate) struct DictionarySource {
    pub(crate) config: String,
    /// The version; absent if the config or the version does not exist.
    pub(crate) version: Option<String>,
    pub(crate) parts: ContentsByKind,
}

/// Returns the keys with their values, as the endpoint of the agent serves them.
pub(crate) fn dictionary(sources: Vec<DictionarySource>, show_secrets: bool) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    let mut configs = Vec::new();
    let mut binary: BTreeMap<String, bool> = BTreeMap::new();
    for DictionarySource { config, version, parts } in sources {
        configs.push(format!("{config}={}", version.as_deref().unwrap_or_default()));
        if let Some(version) = version {
            values.insert(reserved::version_key(&config), version);
        }
        for (kind, content) in parts {
            for (key, value) in content {
                let text = std::str::from_utf8(&value).ok();
                binary.insert(key.clone(), text.is_none());
                let value = match text {
                    _ if kind == PartKind::Secret && !show_secrets => MASK.to_owned(),
                    Some(text) => text.to_owned(),
                    None => STANDARD.encode(&*value),
                };
                values.insert(key, value);
            }
        }
    }
    values.insert(reserved::CONFIGS.to_owned(), configs.join(","));
    let binary: Vec<String> = binary.into_iter().filter(|(_, binary)| *binary).map(|(key, _)| key).collect();
    if !binary.is_empty() {
        values.insert(reserved::BINARY.to_owned(), binary.join(","));
    }
    values
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;

    fn source(config: &str, version: Option<&str>, kind: PartKind, pairs: &[(&str, &[u8])]) -> DictionarySource {
        let content = pairs.iter().map(|&(key, value)| (key.to_owned(), Zeroizing::new(value.to_vec()))).collect();
        DictionarySource {
            config: config.to_owned(),
            version: version.map(str::to_owned),
            parts: [(kind, content)].into(),
        }
    }

    #[test]
    fn the_config_listed_later_wins_and_secrets_are_masked() {
        let sources = || {
            vec![
                source("shop", Some("1"), PartKind::ConfigMap, &[("lives", b"3"), ("raw", &[0xff]), ("was", &[0xfe])]),
                source("keys", Some("7"), PartKind::Secret, &[("pin", b"0000")]),
                source("more", Some("2"), PartKind::ConfigMap, &[("lives", b"5"), ("was", b"text")]),
                source("gone", None, PartKind::ConfigMap, &[]),
            ]
        };
        let masked = dictionary(sources(), false);
        let expected = [
            ("lives", "5"),
            ("nudge.binary", "raw"),
            ("nudge.config.keys.version", "7"),
            ("nudge.config.more.version", "2"),
            ("nudge.config.shop.version", "1"),
            ("nudge.configs", "shop=1,keys=7,more=2,gone="),
            ("pin", "***"),
            ("raw", "/w=="),
            ("was", "text"),
        ];
        assert_eq!(masked.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect::<Vec<_>>(), expected);
        assert_eq!(dictionary(sources(), true)["pin"], "0000");
    }
}
