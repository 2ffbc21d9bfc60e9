//! The objects of an export as documents, without the fields that the API server adds or that only Nudge may write.

use std::fmt;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::{ApiResource, DynamicObject};
use nudge_api::{ConfigSource, RolloutPolicy, VersionedConfig};
use nudge_protocol::labels;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The version of the format. A reader refuses any other version.
pub(crate) const FORMAT: u32 = 1;
/// The `apiVersion` of the documents that are not objects.
pub(crate) const API: &str = "nudge.dev/v1alpha1";
/// The `kind` of the first document.
pub(crate) const HEADER: &str = "Export";
/// The `kind` of the document with all Secrets.
pub(crate) const ENCRYPTED: &str = "EncryptedSecrets";
/// The `kind` of the content key, which is among the Secrets.
pub(crate) const CONTENT_KEY: &str = "ContentKey";
/// The field of a config that names the manager of `spec.version`. The source of the config may not set `spec.version`
/// then.
pub(crate) const MANAGED_BY: &str = "managedBy";

/// Annotations that mean nothing in another object: admission signs them, they request something once, or they hold a
/// copy of the content.
const DROPPED: [&str; 11] = [
    labels::REQUESTED_BY,
    labels::OVERRIDDEN_BY,
    labels::RETRY,
    labels::SOURCE_GONE,
    labels::MAY_ACTIVATE,
    labels::MADE_BY,
    labels::MADE_FOR,
    labels::SET_BY,
    labels::IMPORTING,
    labels::SYNC,
    "kubectl.kubernetes.io/last-applied-configuration",
];

/// The fields of `metadata` that the objects of an export have.
pub(crate) const METADATA: [&str; 5] = ["name", "namespace", "labels", "annotations", "generation"];

/// The first document of an export.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Header {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    /// The version of the format.
    pub(crate) format: u32,
    /// The time of the export.
    pub(crate) exported_at: String,
    /// The uid of the cluster's namespace `kube-system`, if the user may read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cluster: Option<String>,
    /// The version of the program that made the export.
    pub(crate) program: String,
    pub(crate) namespaces: Vec<String>,
    /// The Secrets of versions, as `namespace/name`.
    pub(crate) secrets: Vec<String>,
    /// Whether the Secrets of versions are in the export, encrypted.
    pub(crate) encrypted: bool,
    /// Whether the content key is in the export, encrypted.
    pub(crate) content_key: bool,
    /// The things that such an export never has.
    pub(crate) left_out: Vec<String>,
    /// The objects that could not be exported, with the reason: the first 1000.
    pub(crate) missing: Vec<String>,
    /// The number of all objects that could not be exported.
    pub(crate) missing_count: usize,
}

/// The kinds of objects in an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum DocumentKind {
    Policy,
    Config,
    ConfigMap,
    Secret,
    Source,
}

impl DocumentKind {
    const ALL: [Self; 5] = [Self::Policy, Self::Config, Self::ConfigMap, Self::Secret, Self::Source];

    /// Returns the kind as the API server knows it.
    pub(crate) fn resource(self) -> ApiResource {
        match self {
            Self::Policy => ApiResource::erase::<RolloutPolicy>(&()),
            Self::Config => ApiResource::erase::<VersionedConfig>(&()),
            Self::ConfigMap => ApiResource::erase::<ConfigMap>(&()),
            Self::Secret => ApiResource::erase::<Secret>(&()),
            Self::Source => ApiResource::erase::<ConfigSource>(&()),
        }
    }

    /// Returns the kind of a document, or `None` if no object of an export has the kind.
    pub(crate) fn of(document: &Value) -> Option<Self> {
        let (version, kind) = (document["apiVersion"].as_str()?, document["kind"].as_str()?);
        Self::ALL.into_iter().find(|candidate| {
            let resource = candidate.resource();
            resource.kind == kind && resource.api_version == version
        })
    }
}

/// The kind, namespace and name of an object; the namespace of a cluster-scoped one is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) kind: DocumentKind,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Place {
    pub(crate) fn new(kind: DocumentKind, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.resource().kind;
        if self.namespace.is_empty() {
            write!(out, "{kind} {}", self.name)
        } else {
            write!(out, "{kind} {}/{}", self.namespace, self.name)
        }
    }
}

/// Returns the object as a document without its status.
pub(crate) fn document(kind: DocumentKind, object: DynamicObject) -> Value {
    let (resource, meta) = (kind.resource(), object.metadata);
    let mut metadata = Map::new();
    let mut put = |field: &str, value: Value| drop(metadata.insert(field.to_owned(), value));
    put("name", json!(meta.name));
    if let Some(namespace) = meta.namespace {
        put("namespace", json!(namespace));
    }
    let labels = meta.labels.unwrap_or_default();
    if !labels.is_empty() {
        put("labels", json!(labels));
    }
    let mut annotations = meta.annotations.unwrap_or_default();
    annotations.retain(|name, _| !DROPPED.contains(&name.as_str()));
    if !annotations.is_empty() {
        put("annotations", json!(annotations));
    }
    if kind == DocumentKind::Config {
        put("generation", json!(meta.generation));
    }
    let mut document = json!({"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata});
    if let (Value::Object(document), Value::Object(fields)) = (&mut document, object.data) {
        document.extend(fields.into_iter().filter(|(field, _)| field != "status"));
    }
    document
}

pub(crate) fn label<'a>(document: &'a Value, label: &str) -> Option<&'a str> {
    document["metadata"]["labels"][label].as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_made_up_and_only_nudge_can_say_is_left_out() {
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": "shop-1", "namespace": "team", "uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"nudge.dev/config": "shop"}, "ownerReferences": [], "finalizers": ["x"],
                "annotations": {"nudge.dev/made-by": "1 x alice", "nudge.dev/parts": "2", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
            },
            "immutable": true, "data": {"a": "1"}, "status": {},
        }))
        .unwrap();
        let made = document(DocumentKind::ConfigMap, object);
        assert_eq!(
            made,
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "shop-1", "namespace": "team", "labels": {"nudge.dev/config": "shop"}, "annotations": {"nudge.dev/parts": "2"}},
                "immutable": true, "data": {"a": "1"},
            })
        );
        assert_eq!(DocumentKind::of(&made), Some(DocumentKind::ConfigMap));
        assert_eq!(DocumentKind::of(&json!({"apiVersion": "v2", "kind": "ConfigMap"})), None);
        assert_eq!(Place::new(DocumentKind::Config, "team", "shop").to_string(), "VersionedConfig team/shop");
    }
}
