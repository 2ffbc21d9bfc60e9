//! Checks before a text is edited: whether the config follows it, and whether it can become a version.

use std::collections::BTreeMap;

use nudge_api::{PartKind, VersionedConfig};
use nudge_authoring::{Content, ContentError};
use nudge_core::versions::{Contents, object_name};

use crate::failure::Failure;
use crate::session::Session;
use crate::version::rules::{check, rules_of_config};

/// Refuses a config that does not follow the text of its object of this kind.
pub(crate) fn check_follows(config: &VersionedConfig, kind: PartKind) -> Result<(), Failure> {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let by_version =
        format!("make a version with kubectl nudge create {name}, and use it with kubectl nudge use {name}");
    let refusal = match (&config.spec.version, config.spec.owns(kind)) {
        (_, false) if config.spec.objects.is_empty() => {
            format!("config {name} has no objects with a text; {by_version}")
        }
        (_, false) => {
            format!("{} is not an object of config {name}; add {kind} to spec.objects", object_name(kind, name))
        }
        (Some(version), true) => format!(
            "config {name} does not follow its text, because spec.version is {version}; {by_version}, or follow the text again with \
             kubectl nudge follow {name}"
        ),
        (None, true) => return Ok(()),
    };
    Err(Failure::new(refusal))
}

/// Refuses a text that can't become a version, or that breaks the rules of the config. If the user may not read the
/// Secret, only the limits of the other keys are checked.
pub(crate) async fn check_text(
    session: &Session,
    config: &VersionedConfig,
    text: &BTreeMap<PartKind, Contents>,
    lacks_secret: bool,
) -> Result<(), Failure> {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    check_limits(name, text)?;
    if config.spec.validation.is_empty() || lacks_secret {
        return Ok(());
    }
    let rules = rules_of_config(session, config).await?;
    check(&rules, text.iter().map(|(kind, contents)| (*kind, contents)))
        .map_err(|report| Failure::new(format!("the text breaks the rules of {}: {report}", rules.name)))
}

/// Refuses keys and sizes that a version can't have.
fn check_limits(name: &str, text: &BTreeMap<PartKind, Contents>) -> Result<(), Failure> {
    let mut content = Content::default();
    for (kind, contents) in text {
        if contents.is_empty() {
            return Err(Failure::new(format!(
                "{} would have no keys, and Nudge takes no version of it; leave at least one key",
                object_name(*kind, name)
            )));
        }
        for (key, value) in contents {
            match content.add(*kind == PartKind::Secret, key.clone(), value.to_vec()) {
                Err(ContentError::Twice(key)) => {
                    return Err(Failure::new(format!(
                        "key {key} would be in both ConfigMap {name} and Secret {name}; remove it from one of them"
                    )));
                }
                added => added.map_err(|error| Failure::new(error.to_string()))?,
            }
        }
    }
    content.check().map_err(|error| Failure::new(error.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use zeroize::Zeroizing;

    use super::*;

    #[test]
    fn only_a_text_that_is_followed_is_edited() {
        let refusal = |spec: Value, kind| {
            let config: VersionedConfig = serde_json::from_value(json!({
                "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"}, "spec": spec,
            }))
            .unwrap();
            check_follows(&config, kind).err().map(|failure| failure.message)
        };
        let map = PartKind::ConfigMap;
        assert_eq!(refusal(json!({"objects": ["ConfigMap"]}), map), None);
        for (spec, kind, part) in [
            (json!({}), map, "kubectl nudge create shop"),
            (json!({"version": "2"}), map, "kubectl nudge create shop"),
            (json!({"version": "2", "objects": ["ConfigMap"]}), map, "kubectl nudge follow shop"),
            (json!({"objects": ["ConfigMap"]}), PartKind::Secret, "add Secret to spec.objects"),
        ] {
            let message = refusal(spec, kind).unwrap();
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn a_text_that_can_be_no_version_is_refused_without_a_value() {
        let contents = |key: &str| -> Contents { [(key.to_owned(), Zeroizing::new(b"hidden".to_vec()))].into() };
        let refusal = |open: Contents, secret: Contents| {
            let text = [(PartKind::ConfigMap, open), (PartKind::Secret, secret)].into();
            check_limits("shop", &text).err().map(|failure| failure.message)
        };
        assert_eq!(refusal(contents("lives"), contents("pin")), None);
        for (open, secret, part) in [
            (Contents::new(), contents("pin"), "ConfigMap shop would have no keys"),
            (contents("pin"), contents("pin"), "in both ConfigMap shop and Secret shop"),
            (contents("nudge.x"), contents("pin"), "reserved"),
        ] {
            let message = refusal(open, secret).unwrap();
            assert!(message.contains(part) && !message.contains("hidden"), "{message}");
        }
    }
}
