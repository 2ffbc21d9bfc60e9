//! The facts about a part's content that are needed to seal its version: taken from the whole object once, without
//! keeping a value.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nudge_api::PartKind;
use nudge_protocol::Key;

use super::digest::{Contents, part_digest};
use super::mark::is_marked;
use super::part_author::author;
use super::seal::Seals;
use crate::derived_keys::Keys;
use crate::requester::part_setter;

/// The facts about a part's content that are needed to seal its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartFacts {
    /// The uid of the object.
    pub uid: String,
    /// The resourceVersion of the object, which can change as long as it is not immutable.
    pub resource_version: String,
    /// Whether the object is immutable.
    pub immutable: bool,
    /// Whether the object's creator may update the ConfigMap of the config's name.
    pub marked: bool,
    /// The object's creator.
    pub author: Option<String>,
    /// The user who set the spec of the object's source.
    pub setter: Option<String>,
    /// The bare digest; absent for a Secret.
    pub plain: Option<String>,
    /// The digest under the injector's key, which is written nowhere.
    pub keyed: String,
    /// The keys of the object.
    pub keys: Vec<String>,
    /// The number of bytes of its values.
    pub bytes: u64,
    /// A key that no dictionary can have, with the rule.
    pub bad_key: Option<String>,
}

impl PartFacts {
    /// Returns the facts about an object with this content.
    pub fn new(kind: PartKind, meta: &ObjectMeta, immutable: Option<bool>, content: &Contents, keys: &Keys) -> Self {
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            immutable: immutable == Some(true),
            marked: is_marked(&keys.note, kind, meta, content),
            author: author(&keys.note, kind, meta, content),
            setter: part_setter(&keys.note, meta),
            plain: (kind == PartKind::ConfigMap).then(|| part_digest(content, None)),
            keyed: part_digest(content, Some(&keys.content)),
            keys: content.keys().cloned().collect(),
            bytes: content.values().map(|value| value.len() as u64).sum(),
            bad_key: content.keys().find_map(|key| Key::new(key).err()).map(|error| error.to_string()),
        }
    }

    /// Returns the digest that the status holds for the object as part `number` of the version: the bare digest of a
    /// ConfigMap, the seal of a Secret.
    pub(super) fn digest(&self, seals: &Seals, version: &str, number: usize) -> String {
        self.plain.clone().unwrap_or_else(|| seals.seal(version, number, &self.keyed))
    }

    /// Returns whether the status holds `digest` of this content as part `number` of the version.
    pub(super) fn is_sealed(&self, digest: &str, seals: &Seals, version: &str, number: usize) -> bool {
        digest == self.digest(seals, version, number)
    }
}

/// Returns the name of an object in a message.
pub fn object_name(kind: PartKind, name: &str) -> String {
    format!("{kind} {name}")
}
