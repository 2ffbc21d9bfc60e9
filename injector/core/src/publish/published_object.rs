//! A ConfigMap or a Secret as publishing reads and writes it. Values are wiped on drop, and no type of this file has
//! `Debug`.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nudge_api::{Explanation, PartKind, Reason};
use zeroize::Zeroize as _;

use crate::baseline::{BaselineObject, OPAQUE};

use crate::versions::{Contents, contents_of};

/// The keys and values of an object, or of all parts of a version that are of one kind.
#[derive(Clone)]
pub struct PublishedContent {
    values: Contents,
    /// The keys whose values a ConfigMap holds as bytes.
    binary: BTreeSet<String>,
    /// The type of a Secret; `None` for a ConfigMap.
    secret_type: Option<String>,
}

impl PublishedContent {
    /// Adds a part to the earlier parts, which must have the same type.
    pub fn join(before: Option<Self>, part: Self, version: &str) -> Result<Self, Explanation> {
        let Some(mut joined) = before else { return Ok(part) };
        if let (Some(first), Some(second)) = (&joined.secret_type, &part.secret_type)
            && first != second
        {
            let message = format!(
                "the Secrets of version {version} have the types {first} and {second}, so they can't be one published Secret; make a version \
                 whose Secrets have one type"
            );
            return Err(Reason::TypeNotAllowed.explained(message));
        }
        joined.binary.retain(|key| !part.values.contains_key(key));
        joined.binary.extend(part.binary);
        joined.values.extend(part.values);
        Ok(joined)
    }

    /// Returns the keys and values.
    pub fn values(&self) -> &Contents {
        &self.values
    }

    /// Returns whether a ConfigMap holds the value of this key as bytes.
    pub fn is_binary(&self, key: &str) -> bool {
        self.binary.contains(key)
    }

    /// Returns the type of the Secret; `None` for a ConfigMap.
    pub fn secret_type(&self) -> Option<&str> {
        self.secret_type.as_deref()
    }

    /// Returns the keys and values, and the type of the Secret.
    pub fn into_parts(self) -> (Contents, Option<String>) {
        (self.values, self.secret_type)
    }

    /// Returns the size of all keys and values in bytes.
    pub fn size(&self) -> usize {
        self.values.iter().map(|(key, value)| key.len() + value.len()).sum()
    }
}

/// A ConfigMap or a Secret.
pub struct PublishedObject {
    /// Whether the object is a ConfigMap or a Secret.
    pub kind: PartKind,
    /// The metadata, with Nudge's labels and annotations.
    pub metadata: ObjectMeta,
    /// Whether the API server refuses changes of the content; `None` counts as `false`.
    pub immutable: Option<bool>,
    /// The keys and values.
    pub content: PublishedContent,
}

impl<'a> From<&'a PublishedObject> for BaselineObject<'a> {
    fn from(object: &'a PublishedObject) -> Self {
        Self {
            kind: object.kind,
            metadata: &object.metadata,
            is_immutable: object.immutable == Some(true),
            secret_type: object.content.secret_type(),
        }
    }
}

impl From<ConfigMap> for PublishedObject {
    fn from(object: ConfigMap) -> Self {
        let ConfigMap { metadata, immutable, data, binary_data } = object;
        let binary = binary_data.iter().flatten().map(|(key, _)| key.clone()).collect();
        let content = PublishedContent { values: contents_of(data, binary_data), binary, secret_type: None };
        Self { kind: PartKind::ConfigMap, metadata, immutable, content }
    }
}

impl From<Secret> for PublishedObject {
    fn from(object: Secret) -> Self {
        let Secret { metadata, immutable, data, type_, .. } = object;
        let secret_type = Some(type_.filter(|name| !name.is_empty()).unwrap_or_else(|| OPAQUE.to_owned()));
        let content = PublishedContent { values: contents_of(None, data), binary: BTreeSet::new(), secret_type };
        Self { kind: PartKind::Secret, metadata, immutable, content }
    }
}

impl PublishedObject {
    /// Returns a new object that never changes. The type is that of a Secret.
    pub fn immutable(kind: PartKind, metadata: ObjectMeta, values: Contents, secret_type: &str) -> Self {
        let is_map = kind == PartKind::ConfigMap;
        let bytes = values.iter().filter(|(_, value)| is_map && std::str::from_utf8(value).is_err());
        let binary = bytes.map(|(key, _)| key.clone()).collect();
        let content = PublishedContent { values, binary, secret_type: (!is_map).then(|| secret_type.to_owned()) };
        Self { kind, metadata, immutable: Some(true), content }
    }

    /// Returns the name of the object.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Returns the ConfigMap that the API server should store.
    pub fn config_map(&self) -> ConfigMap {
        let PublishedContent { values, binary, .. } = &self.content;
        let (bytes, text): (Vec<_>, Vec<_>) = values.iter().partition(|(key, _)| binary.contains(*key));
        let text = text.into_iter().map(|(key, value)| (key.clone(), String::from_utf8_lossy(value).into_owned()));
        let bytes = bytes.into_iter().map(|(key, value)| (key.clone(), ByteString(value.to_vec())));
        ConfigMap {
            metadata: self.metadata.clone(),
            immutable: self.immutable,
            data: Some(text.collect()).filter(|text: &BTreeMap<_, _>| !text.is_empty()),
            binary_data: Some(bytes.collect()).filter(|bytes: &BTreeMap<_, _>| !bytes.is_empty()),
        }
    }

    /// Returns the object as a Secret.
    pub fn secret(&self) -> WipedSecret {
        let bytes = self.content.values.iter().map(|(key, value)| (key.clone(), ByteString(value.to_vec())));
        WipedSecret(Secret {
            metadata: self.metadata.clone(),
            immutable: self.immutable,
            data: Some(bytes.collect()),
            type_: self.content.secret_type.clone(),
            ..Secret::default()
        })
    }
}

/// A Secret whose values are overwritten in memory when it is dropped.
pub struct WipedSecret(pub Secret);

impl Drop for WipedSecret {
    fn drop(&mut self) {
        let values = self.0.data.as_mut().into_iter().flat_map(BTreeMap::values_mut);
        values.for_each(|value| value.0.zeroize());
    }
}
