//! The objects of a config as users edit them: their keys and values, and the patch of an edit.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nudge_api::{PartKind, VersionedConfig};
use nudge_core::publish::PublishedObject;
use nudge_core::versions::{Contents, object_name};
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::session::Session;

/// Returns the merge patch from an object to one with the new contents. It applies to exactly this object as it
/// was read.
pub(super) fn patch(object: &PublishedObject, contents: &Contents) -> Value {
    let (mut text, mut bytes) = (Map::new(), Map::new());
    let old = object.content.values();
    let keys: BTreeSet<&String> = old.keys().chain(contents.keys()).collect();
    for key in keys.into_iter().filter(|key| old.get(*key) != contents.get(*key)) {
        let is_binary = object.content.is_binary(key);
        let Some(value) = contents.get(key) else {
            let field = if is_binary { &mut bytes } else { &mut text };
            field.insert(key.clone(), Value::Null);
            continue;
        };
        match (object.kind, std::str::from_utf8(value)) {
            (PartKind::Secret, _) => {
                text.insert(key.clone(), STANDARD.encode(value).into());
            }
            (PartKind::ConfigMap, Ok(value)) => {
                text.insert(key.clone(), value.into());
                if is_binary {
                    bytes.insert(key.clone(), Value::Null);
                }
            }
            (PartKind::ConfigMap, Err(_)) => {
                bytes.insert(key.clone(), STANDARD.encode(value).into());
                if old.contains_key(key) && !is_binary {
                    text.insert(key.clone(), Value::Null);
                }
            }
        }
    }
    let mut patch = json!({"metadata": {"resourceVersion": object.metadata.resource_version}});
    for (field, values) in [("data", text), ("binaryData", bytes)] {
        if !values.is_empty() {
            patch[field] = values.into();
        }
    }
    patch
}

/// The objects of a config, as far as the user may read them.
pub(crate) struct ConfigText {
    pub(crate) objects: BTreeMap<PartKind, PublishedObject>,
    /// Whether the user may not read the Secret.
    pub(crate) lacks_secret: bool,
}

impl ConfigText {
    /// Reads the objects that belong to the config. A user who edits the ConfigMap need not be allowed to read the
    /// Secret.
    pub(crate) async fn read(session: &Session, config: &VersionedConfig) -> Result<Self, Failure> {
        let name = config.metadata.name.as_deref().unwrap_or_default();
        let mut text = Self { objects: BTreeMap::new(), lacks_secret: false };
        for kind in PartKind::ALL.into_iter().filter(|kind| config.spec.owns(*kind)) {
            match session.read_part(kind, name).await {
                Ok(object) => text.objects.extend(object.map(|object| (kind, object))),
                Err(failure) if failure.status == 403 && kind == PartKind::Secret => text.lacks_secret = true,
                Err(failure) => return Err(failure),
            }
        }
        Ok(text)
    }

    /// Returns the object of this kind, which must exist.
    pub(crate) fn object(&self, kind: PartKind, name: &str) -> Result<&PublishedObject, Failure> {
        self.objects.get(&kind).ok_or_else(|| {
            let command = match kind {
                PartKind::ConfigMap => format!("kubectl create configmap {name} --from-file=PATH"),
                PartKind::Secret => format!("kubectl create secret generic {name} --from-file=PATH"),
            };
            let refusal = match kind {
                PartKind::Secret if self.lacks_secret => {
                    format!("you may not read {}; ask the namespace's admin for that right", object_name(kind, name))
                }
                _ => format!("{} does not exist; create it with {command}", object_name(kind, name)),
            };
            Failure::new(refusal)
        })
    }

    pub(crate) fn contents(&self) -> BTreeMap<PartKind, Contents> {
        self.objects.iter().map(|(kind, object)| (*kind, object.content.values().clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use zeroize::Zeroizing;

    use super::*;

    fn map(object: Value) -> PublishedObject {
        serde_json::from_value::<ConfigMap>(object).unwrap().into()
    }

    fn contents(pairs: &[(&str, &[u8])]) -> Contents {
        pairs.iter().map(|&(key, value)| (key.to_owned(), Zeroizing::new(value.to_vec()))).collect()
    }

    #[test]
    fn a_patch_has_the_changes_alone_and_the_version_that_was_read() {
        let before = map(json!({
            "metadata": {"name": "shop", "resourceVersion": "7"},
            "data": {"lives": "3", "gone": "x", "same": "s", "raw": "text"}, "binaryData": {"bytes": "/w==", "old": "/w=="},
        }));
        let after = contents(&[("lives", b"5"), ("same", b"s"), ("new", b""), ("raw", &[0xfe]), ("bytes", b"text")]);
        let expected = json!({
            "metadata": {"resourceVersion": "7"},
            "data": {"lives": "5", "gone": null, "new": "", "raw": null, "bytes": "text"},
            "binaryData": {"raw": "/g==", "bytes": null, "old": null},
        });
        assert_eq!(patch(&before, &after), expected);
        assert_eq!(patch(&before, before.content.values()), json!({"metadata": {"resourceVersion": "7"}}));
    }

    #[test]
    fn values_of_a_secret_are_encoded() {
        let secret =
            json!({"metadata": {"name": "shop", "resourceVersion": "7"}, "data": {"pin": "MQ==", "old": "MQ=="}});
        let secret: PublishedObject = serde_json::from_value::<Secret>(secret).unwrap().into();
        let expected = json!({"metadata": {"resourceVersion": "7"}, "data": {"pin": "Mg==", "old": null}});
        assert_eq!(patch(&secret, &contents(&[("pin", b"2")])), expected);
    }

    #[test]
    fn an_object_that_is_missing_says_how_it_is_made() {
        let text = ConfigText {
            objects: [(PartKind::ConfigMap, map(json!({"metadata": {"name": "shop"}})))].into(),
            lacks_secret: false,
        };
        assert!(text.object(PartKind::ConfigMap, "shop").is_ok());
        let refusal = text.object(PartKind::Secret, "shop").err().unwrap().message;
        assert!(refusal.contains("kubectl create secret generic shop"), "{refusal}");
        let refusal = ConfigText { lacks_secret: true, ..text }.object(PartKind::Secret, "shop").err().unwrap().message;
        assert!(refusal.starts_with("you may not read Secret shop"), "{refusal}");
    }
}
