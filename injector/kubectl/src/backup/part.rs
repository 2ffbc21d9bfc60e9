//! The parts of versions as they were sealed, and whether an object is one of them.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use nudge_api::{PartKind, PartStatus, VersionedConfig};
use nudge_core::baseline::is_configuration;
use nudge_core::derived_keys::ContentKey;
use nudge_core::identity::Identity;
use nudge_core::keys::ConfigKey;
use nudge_core::versions::{Contents, PLAIN, Seals, contents_of, part_digest};
use nudge_protocol::labels;
use nudge_protocol::names::is_object_name;
use serde_json::Value;

use super::document::{DocumentKind, Place, label};

/// A part as the status of its config names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sealed<'a> {
    pub(crate) config: &'a Place,
    pub(crate) version: &'a str,
    /// The number among the parts of the version.
    pub(crate) number: usize,
    pub(crate) part: &'a PartStatus,
}

impl Sealed<'_> {
    /// Returns the kind, namespace and name of the object.
    pub(crate) fn place(&self) -> Place {
        Place::new(self.part.kind.into(), &self.config.namespace, &self.part.name)
    }

    /// Returns whether the object has the labels of this version.
    pub(crate) fn is_labelled(&self, document: &Value) -> bool {
        let Self { config, version, .. } = *self;
        label(document, labels::CONFIG) == Some(&config.name) && label(document, labels::VERSION) == Some(version)
    }

    /// Returns whether the object has the labels of another version.
    pub(crate) fn is_of_another(&self, document: &Value) -> bool {
        let is_labelled = [labels::CONFIG, labels::VERSION].iter().all(|key| label(document, key).is_some());
        is_labelled && !self.is_labelled(document)
    }

    /// Returns the version of this part, as messages name it.
    pub(crate) fn title(&self) -> String {
        let Self { config, version, .. } = *self;
        format!("version {version} of config {}/{}", config.namespace, config.name)
    }

    /// Returns how the object differs from the sealed part, in words that stand before `of version`. The content of a
    /// Secret can be checked only with the content key.
    pub(crate) fn fault(&self, document: &Value, seals: Option<&Seals>) -> Option<&'static str> {
        let Self { version, number, part, .. } = *self;
        if !self.is_labelled(document) {
            return Some("does not have the labels");
        }
        if document["immutable"] != true {
            return Some("is not immutable, unlike a part");
        }
        // A Secret with the token of a service account has another type, for example.
        if !document["type"].as_str().is_none_or(is_configuration) {
            return Some("has a type that is not allowed for a part");
        }
        let Some(content) = content(document) else { return Some("can't be read as a part") };
        let is_sealed = match (seals, part.kind) {
            (_, PartKind::ConfigMap) => part.digest == part_digest(&content, None),
            (Some(seals), PartKind::Secret) => {
                !part.digest.starts_with(PLAIN) && seals.is_sealed(&part.digest, version, number, &content)
            }
            (None, PartKind::Secret) => true,
        };
        (!is_sealed).then_some("does not have the content that was sealed as part")
    }
}

impl From<PartKind> for DocumentKind {
    fn from(part: PartKind) -> Self {
        match part {
            PartKind::ConfigMap => Self::ConfigMap,
            PartKind::Secret => Self::Secret,
        }
    }
}

/// Returns the parts of the config's versions.
pub(crate) fn parts<'a>(place: &'a Place, config: &'a VersionedConfig) -> impl Iterator<Item = Sealed<'a>> {
    let versions = config.status.iter().flat_map(|status| &status.versions);
    versions.flat_map(move |version| {
        let numbered = version.parts.iter().zip(1..);
        numbered.map(move |(part, number)| Sealed { config: place, version: &version.version, number, part })
    })
}

/// Returns whether the ConfigMap with the config's name is the one that the config publishes.
pub(crate) fn is_published(config: &VersionedConfig) -> bool {
    config.status.as_ref().is_some_and(|status| status.published_version.is_some())
}

/// Returns the seals of the config's Secrets, if the content key is known. Fails for a config that can't be used.
pub(crate) fn seals(
    place: &Place,
    config: &VersionedConfig,
    content_key: Option<&ContentKey>,
) -> Result<Option<Seals>, String> {
    let key = ConfigKey::parse(&place.namespace, &place.name).map_err(|error| error.to_string())?;
    let identity = config.status.as_ref().and_then(|status| status.internal.identity.as_deref());
    if identity.map(Identity::parse) == Some(None) {
        return Err("status.internal.identity is not 32 hex digits".to_owned());
    }
    if let Some(sealed) = parts(place, config).find(|sealed| !is_object_name(&sealed.part.name)) {
        return Err(format!("its version {} has a part whose name is not allowed", sealed.version));
    }
    Ok(content_key.map(|content_key| Seals::new(content_key, &key, Identity::of(config))))
}

/// Returns the keys and values of a ConfigMap or Secret.
pub(crate) fn content(document: &Value) -> Option<Contents> {
    let bytes =
        |field: &str| serde_json::from_value::<Option<BTreeMap<String, ByteString>>>(document[field].clone()).ok();
    if DocumentKind::of(document)? == DocumentKind::Secret {
        return Some(contents_of(None, bytes("data")?));
    }
    let text = serde_json::from_value::<Option<BTreeMap<String, String>>>(document["data"].clone()).ok()?;
    Some(contents_of(text, bytes("binaryData")?))
}
