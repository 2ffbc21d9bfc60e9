//! What a file of `kubectl nudge plan -f` would change of a config: its spec, the text of its objects, or a new
//! version.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use nudge_api::{PartKind, VersionedConfig};
use nudge_core::versions::contents_of;
use nudge_protocol::labels;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::manifest::documents;
use crate::version::stored::ContentsByKind;

/// The changes of one config.
#[derive(Debug, Default)]
pub(crate) struct ConfigChange {
    /// The config as the file has it.
    pub(super) config: Option<VersionedConfig>,
    /// The contents of the objects of the config's name.
    pub(super) text: ContentsByKind,
    /// The contents of versions, by their names.
    pub(super) versions: BTreeMap<String, ContentsByKind>,
}

impl ConfigChange {
    /// Returns what the text of the file would change of the config of this name. No fault quotes the text.
    pub(crate) fn read(text: &str, name: &str) -> Result<Self, String> {
        let mut change = Self::default();
        for document in documents(text)? {
            change.add(document, name)?;
        }
        if change.config.is_none() && change.text.is_empty() && change.versions.is_empty() {
            return Err(format!(
                "it has nothing of config {name}: neither a VersionedConfig, ConfigMap or Secret of this name, nor an object with the label {}: \
                 {name}",
                labels::CONFIG
            ));
        }
        Ok(change)
    }

    fn add(&mut self, mut document: Value, name: &str) -> Result<(), String> {
        let kind = document["kind"].as_str().unwrap_or_default().to_owned();
        if kind.ends_with("List") {
            let items = document["items"].take();
            let items = if let Value::Array(items) = items { items } else { Vec::new() };
            return items.into_iter().try_for_each(|item| self.add(item, name));
        }
        let object = document["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        // The message of serde would quote a value.
        let unusable = || format!("{kind} {object} in it is not one that the API server would take");
        let (part, contents, metadata) = match kind.as_str() {
            "VersionedConfig" if object == name => {
                let config = serde_json::from_value(document).map_err(|_| unusable())?;
                if self.config.replace(config).is_some() {
                    return Err(format!("it has VersionedConfig {name} twice"));
                }
                return Ok(());
            }
            "ConfigMap" => {
                let map: ConfigMap = serde_json::from_value(document).map_err(|_| unusable())?;
                (PartKind::ConfigMap, contents_of(map.data, map.binary_data), map.metadata)
            }
            "Secret" => {
                let secret: Secret = serde_json::from_value(document).map_err(|_| unusable())?;
                let mut contents = contents_of(None, secret.data);
                let open = secret.string_data.into_iter().flatten();
                contents.extend(open.map(|(key, value)| (key, Zeroizing::new(value.into_bytes()))));
                (PartKind::Secret, contents, secret.metadata)
            }
            _ => return Ok(()),
        };
        let label = |label: &str| metadata.labels.as_ref().and_then(|labels| labels.get(label)).map(String::as_str);
        if label(labels::CONFIG) == Some(name) {
            let version = label(labels::VERSION)
                .ok_or_else(|| format!("{kind} {object} in it has no label {}", labels::VERSION))?;
            self.versions.entry(version.to_owned()).or_default().entry(part).or_default().extend(contents);
        } else if object == name && self.text.insert(part, contents).is_some() {
            return Err(format!("it has {kind} {name} twice"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use nudge_core::versions::Contents;

    use super::*;

    fn keys(contents: &Contents) -> Vec<&str> {
        contents.keys().map(String::as_str).collect()
    }

    #[test]
    fn a_file_has_the_spec_the_text_and_versions_of_a_config() {
        let text = "kind: VersionedConfig\nmetadata: {name: game}\nspec: {version: '2'}\n---\nkind: List\nitems:\n\
                    - {kind: ConfigMap, metadata: {name: game}, data: {lives: '3'}}\n\
                    - {kind: Secret, metadata: {name: game}, data: {pin: MQ==}, stringData: {pin: '2', key: k}}\n\
                    - {kind: ConfigMap, metadata: {name: game-2, labels: {nudge.dev/config: game, nudge.dev/version: '2'}}, data: {a: b}}\n\
                    - {kind: ConfigMap, metadata: {name: game-2-2, labels: {nudge.dev/config: game, nudge.dev/version: '2'}}, data: {e: f}}\n\
                    - {kind: ConfigMap, metadata: {name: other}, data: {c: d}}\n---\nkind: Deployment\nmetadata: {name: game}\n";
        let change = ConfigChange::read(text, "game").unwrap();
        assert_eq!(change.config.unwrap().spec.version.as_deref(), Some("2"));
        assert_eq!(keys(&change.text[&PartKind::ConfigMap]), ["lives"]);
        let secret = &change.text[&PartKind::Secret];
        assert_eq!((keys(secret), secret["pin"].as_slice()), (vec!["key", "pin"], &b"2"[..]));
        assert_eq!(change.versions.keys().collect::<Vec<_>>(), ["2"]);
        assert_eq!(keys(&change.versions["2"][&PartKind::ConfigMap]), ["a", "e"]);
    }

    #[test]
    fn a_file_that_says_nothing_about_the_config_is_refused_without_its_values() {
        let labels = "{name: x, labels: {nudge.dev/config: game}}";
        for (text, part) in [
            ("kind: ConfigMap\nmetadata: {name: other}\ndata: {pin: hidden}", "it has nothing of config game"),
            ("kind: Secret\nmetadata: {name: game}\ndata: {pin: [hidden]}", "Secret game in it is not one"),
            ("pin: hidden\nx: [", "it is not YAML: see line"),
            (&format!("kind: ConfigMap\nmetadata: {labels}\ndata: {{pin: hidden}}"), "has no label nudge.dev/version"),
            ("kind: ConfigMap\nmetadata: {name: game}\n---\nkind: ConfigMap\nmetadata: {name: game}", "game twice"),
        ] {
            let fault = ConfigChange::read(text, "game").unwrap_err();
            assert!(fault.contains(part) && !fault.contains("hidden"), "{fault}");
        }
    }
}
