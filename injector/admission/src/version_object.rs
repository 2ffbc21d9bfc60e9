//! A ConfigMap or Secret under review, as plain data.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::ObjectMeta;
use kube::core::dynamic::DynamicObject;
use nudge_api::PartKind;
use nudge_core::versions::{Contents, contents_of};
use nudge_protocol::labels;
use serde::Deserialize as _;
use serde_json::Value;

use super::review::{ReviewError, ReviewRequest};

/// A ConfigMap or Secret under review.
#[derive(Clone)]
pub struct VersionObject {
    /// Whether the object is a ConfigMap or a Secret.
    pub kind: PartKind,
    /// The metadata, with the name of the request if the object lacks it.
    pub metadata: ObjectMeta,
    /// Whether the object has `immutable: true`.
    pub immutable: bool,
    /// The type of a Secret; `None` for a ConfigMap.
    pub secret_type: Option<String>,
    /// The keys and values.
    pub content: Contents,
}

impl VersionObject {
    /// Reads the object that a request would store.
    pub fn new_of(request: &ReviewRequest) -> Result<Self, ReviewError> {
        Self::read(request, request.required_object()?)
    }

    /// Reads the object that is stored.
    pub fn old_of(request: &ReviewRequest) -> Result<Self, ReviewError> {
        Self::read(request, request.required_old_object()?)
    }

    fn read(request: &ReviewRequest, object: &DynamicObject) -> Result<Self, ReviewError> {
        let kind = match (request.kind.group.as_str(), request.kind.kind.as_str()) {
            ("", "ConfigMap") => PartKind::ConfigMap,
            ("", "Secret") => PartKind::Secret,
            _ => return Err(ReviewError::Request("it is about neither a ConfigMap nor a Secret")),
        };
        let mut metadata = object.metadata.clone();
        if metadata.name.is_none() && !request.name.is_empty() {
            metadata.name = Some(request.name.clone());
        }
        let data = &object.data;
        Ok(Self {
            kind,
            metadata,
            immutable: data["immutable"].as_bool().unwrap_or(false),
            secret_type: data["type"].as_str().map(str::to_owned),
            content: content(kind, data)?,
        })
    }

    /// Returns the value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(name).map(String::as_str)
    }

    /// Returns the value of an annotation.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }

    /// Returns whether the object has the label of a version's part.
    pub fn is_labelled(&self) -> bool {
        self.label(labels::CONFIG).is_some()
    }

    /// Returns whether the object has a deletion timestamp.
    pub fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Returns the name, which is empty if the API server has yet to generate it.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Returns the kind and the name, as in `ConfigMap shop-1.0.1`.
    pub fn title(&self) -> String {
        match (self.name(), self.metadata.generate_name.as_deref()) {
            ("", Some(prefix)) => format!("{} {prefix}*", self.kind),
            (name, _) => format!("{} {name}", self.kind),
        }
    }

    /// Returns the object with its version, as in `ConfigMap shop-1.0.1, part of version 1.0.1 of config shop,`.
    pub fn part_title(&self) -> String {
        let [config, version] = [labels::CONFIG, labels::VERSION].map(|label| self.label(label).unwrap_or_default());
        format!("{}, part of version {version} of config {config},", self.title())
    }
}

/// Returns the keys and values. No error quotes them.
fn content(kind: PartKind, data: &Value) -> Result<Contents, ReviewError> {
    let content = match kind {
        PartKind::ConfigMap => ConfigMap::deserialize(data).map(|map| contents_of(map.data, map.binary_data)),
        PartKind::Secret => Secret::deserialize(data).map(|secret| contents_of(None, secret.data)),
    };
    content.map_err(|_| ReviewError::Request("its keys and values can't be read"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_decoded() {
        let data = json!({"data": {"a": "plain-secret"}, "binaryData": {"b": "/w=="}});
        let content = content(PartKind::ConfigMap, &data).unwrap();
        assert_eq!((content["a"].as_slice(), content["b"].as_slice()), (&b"plain-secret"[..], &[0xff][..]));
        let secret = json!({"data": {"a": "cGxhaW4="}});
        assert_eq!(super::content(PartKind::Secret, &secret).unwrap()["a"].as_slice(), b"plain");
        for odd in [json!({"data": 1}), json!({"data": {"a": 1}}), json!({"binaryData": {"a": "?"}})] {
            assert!(super::content(PartKind::ConfigMap, &odd).is_err(), "{odd}");
        }
    }
}
