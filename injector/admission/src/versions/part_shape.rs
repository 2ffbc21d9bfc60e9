//! Rules for a new part of a version, whatever the other parts are.

use nudge_core::versions::{PartLabels, PartLabelsError};
use nudge_protocol::Key;
use nudge_protocol::limits::{MAX_DICTIONARY_BYTES, MAX_KEYS, MAX_VALUE_BYTES};

use crate::verdict::Denial;
use crate::version_object::VersionObject;

/// The type of Secrets that the cluster itself fills in and changes.
const SERVICE_ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";

/// Checks a part without regard to the other parts.
pub(crate) fn check_shape(object: &VersionObject) -> Result<PartLabels, Denial> {
    let part = PartLabels::parse(&object.metadata).map_err(|error| {
        let missing = matches!(error, PartLabelsError::NoVersion | PartLabelsError::NoNumber { .. });
        let remedy = if missing { "add it" } else { "correct it" };
        Denial::invalid(format!("{} can't be a version: {error}; {remedy}", object.title()))
    })?;
    check_owners(object)?;
    check_secret_type(object)?;
    check_content(object)?;
    if !object.immutable {
        let title = object.part_title();
        return Err(Denial::invalid(format!("{title} must be immutable; set immutable: true")));
    }
    Ok(part)
}

/// Denies owners: deleting the owner would delete the version in spite of all rules.
pub(super) fn check_owners(object: &VersionObject) -> Result<(), Denial> {
    let Some(owner) = object.metadata.owner_references.iter().flatten().next() else { return Ok(()) };
    Err(Denial::invalid(format!(
        "{} belongs to {} {}, and a version must have no owner because it would be deleted together with it; remove \
         metadata.ownerReferences",
        object.part_title(),
        owner.kind,
        owner.name
    )))
}

fn check_secret_type(object: &VersionObject) -> Result<(), Denial> {
    if object.secret_type.as_deref() != Some(SERVICE_ACCOUNT_TOKEN) {
        return Ok(());
    }
    Err(Denial::invalid(format!(
        "{} is of type {SERVICE_ACCOUNT_TOKEN}, which the cluster itself fills in and changes; use the type Opaque",
        object.part_title()
    )))
}

fn check_content(object: &VersionObject) -> Result<(), Denial> {
    let title = object.part_title();
    let values = &object.content;
    for name in values.keys() {
        Key::new(name).map_err(|error| Denial::invalid(format!("{title} can't be a version: {error}")))?;
    }
    let bytes: usize = values.values().map(|value| value.len()).sum();
    let remedy = "make it smaller or spread it over several parts";
    if values.len() > MAX_KEYS {
        let keys = values.len();
        return Err(Denial::invalid(format!("{title} has {keys} keys, and at most {MAX_KEYS} are allowed; {remedy}")));
    }
    if let Some((key, value)) = values.iter().find(|(_, value)| value.len() > MAX_VALUE_BYTES) {
        let bytes = value.len();
        return Err(Denial::invalid(format!(
            "{title} has a value of {bytes} bytes for the key {key}, and at most {MAX_VALUE_BYTES} are allowed; make it smaller"
        )));
    }
    if bytes > MAX_DICTIONARY_BYTES {
        return Err(Denial::invalid(format!(
            "{title} has {bytes} bytes, and at most {MAX_DICTIONARY_BYTES} are allowed; {remedy}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use nudge_api::PartKind;
    use nudge_protocol::labels;

    use super::*;
    use crate::fixtures::{message, part, set_annotation, set_label};

    fn config_map() -> VersionObject {
        part(PartKind::ConfigMap, "shop-1.0.1")
    }

    #[test]
    fn a_part_names_its_version_and_number() {
        let mut object = config_map();
        set_annotation(&mut object, labels::PARTS, "16");
        set_label(&mut object, labels::PART, "16");
        let part = check_shape(&object).unwrap();
        assert_eq!((part.config.as_str(), part.version.as_str()), ("shop", "1.0.1"));
        assert_eq!((part.number.number(), part.number.count()), (16, 16));
    }

    #[test]
    fn labels_that_break_a_rule_are_named() {
        let refused = |change: &dyn Fn(&mut VersionObject)| {
            let mut object = config_map();
            change(&mut object);
            message(check_shape(&object))
        };
        assert_eq!(
            refused(&|object| set_label(object, labels::CONFIG, "Shop")),
            "ConfigMap shop-1.0.1 can't be a version: label nudge.dev/config: config \"Shop\" is not allowed: it must be a DNS \
             name: lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit, at most 253 \
             characters; correct it"
        );
        assert_eq!(
            refused(&|object| drop(object.metadata.labels.as_mut().unwrap().remove(labels::VERSION))),
            "ConfigMap shop-1.0.1 can't be a version: label nudge.dev/version is missing; add it"
        );
        assert_eq!(
            refused(&|object| set_label(object, labels::PART, "01")),
            "ConfigMap shop-1.0.1 can't be a version: label nudge.dev/part must be a number from 1 to 1, not \"01\"; correct it"
        );
    }

    #[test]
    fn a_version_has_no_owner() {
        let mut object = config_map();
        let owner = OwnerReference { kind: "Deployment".into(), name: "web".into(), ..OwnerReference::default() };
        object.metadata.owner_references = Some(vec![owner]);
        assert_eq!(
            message(check_shape(&object)),
            "ConfigMap shop-1.0.1, part of version 1.0.1 of config shop, belongs to Deployment web, and a version must have no \
             owner because it would be deleted together with it; remove metadata.ownerReferences"
        );
    }

    #[test]
    fn secrets_that_the_cluster_fills_in_are_none() {
        let mut object = part(PartKind::Secret, "keys");
        assert!(check_shape(&object).is_ok());
        object.secret_type = Some(SERVICE_ACCOUNT_TOKEN.into());
        assert!(
            message(check_shape(&object)).contains("Secret keys, part of version 1.0.1 of config shop, is of type")
        );
    }

    #[test]
    fn a_version_is_immutable() {
        let mut object = config_map();
        object.immutable = false;
        assert_eq!(
            message(check_shape(&object)),
            "ConfigMap shop-1.0.1, part of version 1.0.1 of config shop, must be immutable; set immutable: true"
        );
    }

    #[test]
    fn every_bound_of_the_content_is_kept() {
        let with = |content: &[(String, usize)]| {
            let mut object = config_map();
            object.content = content.iter().map(|(key, length)| (key.clone(), vec![b'x'; *length].into())).collect();
            check_shape(&object)
        };
        let keys = |count: usize| (0..count).map(|key| (key.to_string(), 0)).collect::<Vec<_>>();
        assert!(with(&keys(MAX_KEYS)).is_ok());
        assert!(message(with(&keys(MAX_KEYS + 1))).contains("has 8193 keys, and at most 8192 are allowed"));
        assert!(with(&[("a".into(), MAX_VALUE_BYTES)]).is_ok());
        assert!(message(with(&[("a".into(), MAX_VALUE_BYTES + 1)])).contains("for the key a"));
        let large: Vec<_> = ["a", "b", "c"].map(|key| (key.to_owned(), MAX_VALUE_BYTES)).into();
        assert!(with(&large).is_ok());
        let larger = [&large[..], &[("d".to_owned(), 1)]].concat();
        assert!(message(with(&larger)).contains("spread it over several parts"));
        assert!(
            message(with(&[("nudge.configs".into(), 1)]))
                .contains("begin with 'nudge.' are reserved for Nudge; rename the key")
        );
    }
}
