//! What the index's entries are called, and the few fields of objects whose metadata alone is watched.

use nudge_api::PartKind;

/// Namespace and name of a config.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConfigKey {
    /// The namespace.
    pub namespace: String,
    /// The config's name.
    pub name: String,
}

impl ConfigKey {
    /// The config `name` in `namespace`.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl std::fmt::Display for ConfigKey {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{}", self.namespace, self.name)
    }
}

/// Namespace and name of a pod.
pub type PodKey = ConfigKey;

/// Metadata of an object with the labels of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartMeta {
    /// Its kind.
    pub kind: PartKind,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub resource_version: String,
    /// Its version label, whatever that is.
    pub version: String,
    /// Its part label.
    pub part: Option<String>,
    /// Its annotation with the number of parts.
    pub parts: Option<String>,
    /// The history limit may delete it.
    pub prune: bool,
    /// When it was made, in seconds since 1970.
    pub created: i64,
    /// It is being deleted.
    pub terminating: bool,
}

/// What the last reconciliation of the plain ConfigMap has left on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedMeta {
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub resource_version: String,
}
