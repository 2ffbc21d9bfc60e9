//! The keys of configs, pods and the objects of versions, and the metadata of objects that are watched by metadata
//! alone.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nudge_api::PartKind;
use nudge_protocol::{ConfigName, NameError};

/// A config, by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConfigKey {
    /// The namespace of the object.
    pub namespace: String,
    /// The config's name.
    pub name: ConfigName,
}

impl ConfigKey {
    /// Returns the key of the config `name` in `namespace`.
    pub fn new(namespace: impl Into<String>, name: ConfigName) -> Self {
        Self { namespace: namespace.into(), name }
    }

    /// Returns the key of the config with this name, which is checked.
    pub fn parse(namespace: impl Into<String>, name: &str) -> Result<Self, NameError> {
        Ok(Self::new(namespace, ConfigName::new(name)?))
    }

    /// Returns the key of the config that an object with these metadata is, or that it publishes.
    pub fn of(meta: &ObjectMeta) -> Result<Self, NameError> {
        Self::parse(meta.namespace.clone().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
    }
}

impl fmt::Display for ConfigKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.namespace, self.name)
    }
}

/// The key of a pod by its name. Another pod may get the same name later, with another [`PodUid`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodKey {
    /// The namespace of the object.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
}

impl PodKey {
    /// Returns the key of the pod `name` in `namespace`.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.namespace, self.name)
    }
}

/// The uid of a pod, which no other pod ever has. Empty only in the default value.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodUid(Box<str>);

impl PodUid {
    /// Returns the uid; `None` if it is empty.
    pub fn new(uid: &str) -> Option<Self> {
        (!uid.is_empty()).then(|| Self(uid.into()))
    }

    /// Returns the uid as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// The key of an object with the labels of a version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Whether the object is a ConfigMap or a Secret.
    pub kind: PartKind,
    /// The namespace, which is that of its config.
    pub namespace: String,
    /// The object's own name, which need not be that of a config.
    pub name: String,
}

impl ObjectKey {
    /// Returns the key of the object `name` of this kind in `namespace`.
    pub fn new(kind: PartKind, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { kind, namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// The metadata of an object with the labels of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartMeta {
    /// The kind of the object.
    pub kind: PartKind,
    /// The name of the object.
    pub name: String,
    /// The uid of the object.
    pub uid: String,
    /// The resourceVersion of the object.
    pub resource_version: String,
    /// The version label as text: a version that is not allowed is reported in the config's status.
    pub version: String,
    /// The part label.
    pub part: Option<String>,
    /// The annotation with the number of parts.
    pub parts: Option<String>,
    /// Whether the history limit may delete the object.
    pub prune: bool,
    /// The number of versions like this one that the history limit keeps, if it differs from the config's limit.
    pub keep: Option<u32>,
    /// The time of the object's creation, in seconds since 1970.
    pub created: i64,
    /// Whether the object is being deleted.
    pub terminating: bool,
}

/// The metadata of a published ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedMeta {
    /// The uid of the object.
    pub uid: String,
    /// The resourceVersion of the object.
    pub resource_version: String,
}
