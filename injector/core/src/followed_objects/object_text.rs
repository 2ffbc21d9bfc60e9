//! The text of one object of a config: its keys and values, or the reason why they can't be part of a version.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nudge_api::{Explanation, PartKind, Reason};
use nudge_protocol::labels;

use crate::baseline::{RESERVED, is_configuration};
use crate::publish::PublishedObject;
use crate::versions::{Contents, object_name};

/// The text of one object of a config.
pub struct ReadText {
    /// The keys and values.
    pub contents: Contents,
    /// The type of a Secret; `None` for a ConfigMap.
    pub secret_type: Option<String>,
}

/// Reads the text from the object of this kind and the config's name.
pub fn read_object(kind: PartKind, name: &str, object: Option<PublishedObject>) -> Result<ReadText, Explanation> {
    let title = object_name(kind, name);
    let refuse = |message: String| Err(Reason::NoText.explained(message));
    let Some(object) = object.filter(|object| object.metadata.deletion_timestamp.is_none()) else {
        return refuse(format!(
            "{title} does not exist; create it, or make a version current (kubectl nudge use {name})"
        ));
    };
    if has_label(&object.metadata, labels::CONFIG) || name == RESERVED {
        return refuse(format!("{title} belongs to a version or to Kubernetes; give the config another name"));
    }
    let (contents, secret_type) = object.content.into_parts();
    if let Some(secret_type) = secret_type.as_ref().filter(|secret_type| !is_configuration(secret_type)) {
        return refuse(format!(
            "{title} has the type {secret_type}, which is not for configuration; give the config another name"
        ));
    }
    if contents.is_empty() {
        return refuse(format!("{title} has no keys; add one, or make a version current (kubectl nudge use {name})"));
    }
    Ok(ReadText { contents, secret_type })
}

fn has_label(metadata: &ObjectMeta, label: &str) -> bool {
    metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(label))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(kind: PartKind, object: &Value) -> Result<usize, String> {
        let object: PublishedObject = match kind {
            PartKind::ConfigMap => {
                serde_json::from_value::<k8s_openapi::api::core::v1::ConfigMap>(object.clone()).unwrap().into()
            }
            PartKind::Secret => {
                serde_json::from_value::<k8s_openapi::api::core::v1::Secret>(object.clone()).unwrap().into()
            }
        };
        read_object(kind, "shop", Some(object))
            .map(|text| text.contents.len())
            .map_err(|explanation| explanation.message)
    }

    #[test]
    fn an_object_with_keys_is_a_text() {
        let both = json!({"metadata": {"name": "shop"}, "data": {"a": "1"}, "binaryData": {"b": "AQ=="}});
        assert_eq!(read(PartKind::ConfigMap, &both), Ok(2));
        let tls = json!({"metadata": {"name": "shop"}, "type": "kubernetes.io/tls", "data": {"tls.key": "AQ=="}});
        assert_eq!(read(PartKind::Secret, &tls), Ok(1));
    }

    #[test]
    fn what_is_no_text_says_why() {
        let missing = read_object(PartKind::ConfigMap, "shop", None).err().unwrap();
        assert_eq!(
            (missing.reason, missing.message.starts_with("ConfigMap shop does not exist")),
            (Reason::NoText, true)
        );
        for (kind, object, part) in [
            (PartKind::ConfigMap, json!({"metadata": {"name": "shop"}}), "has no keys"),
            (
                PartKind::ConfigMap,
                json!({"metadata": {"name": "shop", "labels": {labels::CONFIG: "shop"}}, "data": {"a": "1"}}),
                "belongs to a version",
            ),
            (
                PartKind::ConfigMap,
                json!({"metadata": {"name": "shop", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "data": {"a": "1"}}),
                "does not exist",
            ),
            (
                PartKind::Secret,
                json!({"metadata": {"name": "shop"}, "type": "helm.sh/release.v1", "data": {"a": "MQ=="}}),
                "not for configuration",
            ),
        ] {
            let message = read(kind, &object).unwrap_err();
            assert!(message.contains(part), "{message}");
        }
    }
}
