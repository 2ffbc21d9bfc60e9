//! What a new part of a version must look like, whatever else there is.

use nudge_core::versions::MAX_PARTS;
use nudge_protocol::limits::{MAX_DICTIONARY_BYTES, MAX_KEYS, MAX_VALUE_BYTES};
use nudge_protocol::{ConfigName, Key, VersionName, labels};

use crate::object::VersionObject;
use crate::verdict::Denial;

/// A Secret that the cluster fills in itself, and changes.
const SERVICE_ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";

/// Which part of which version an object is, by its labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartId {
    /// The config.
    pub config: ConfigName,
    /// The version.
    pub version: VersionName,
    /// The number of this part, from 1.
    pub part: usize,
    /// How many parts the version has.
    pub parts: usize,
}

/// Checks all that a part shows by itself.
pub fn check(object: &VersionObject) -> Result<PartId, Denial> {
    let id = part_id(object)?;
    owners(object)?;
    secret_type(object)?;
    content(object)?;
    if !object.immutable {
        let title = object.part_title();
        return Err(Denial::invalid(format!("{title} must be immutable; set immutable: true")));
    }
    Ok(id)
}

fn part_id(object: &VersionObject) -> Result<PartId, Denial> {
    let title = object.title();
    let config = object.label(labels::CONFIG).unwrap_or_default();
    let config = ConfigName::new(config).map_err(|error| label_denial(&title, labels::CONFIG, &error))?;
    let Some(version) = object.label(labels::VERSION) else {
        return Err(Denial::invalid(format!(
            "{title} has the label {} but not {}, and a version needs both; add it",
            labels::CONFIG,
            labels::VERSION
        )));
    };
    let version = VersionName::new(version).map_err(|error| label_denial(&title, labels::VERSION, &error))?;
    let (part, parts) = numbers(object)?;
    Ok(PartId { config, version, part, parts })
}

fn label_denial(title: &str, label: &str, error: &nudge_protocol::NameError) -> Denial {
    Denial::invalid(format!("{title} can't be a version: {error}; correct its label {label}"))
}

fn numbers(object: &VersionObject) -> Result<(usize, usize), Denial> {
    let title = object.title();
    let parts = match object.annotation(labels::PARTS) {
        None => 1,
        Some(text) => number(text, MAX_PARTS).ok_or_else(|| {
            Denial::invalid(format!(
                "{title} can't be a version: its annotation {} must be a number from 1 to {MAX_PARTS}, not {}; correct it",
                labels::PARTS,
                quoted(text)
            ))
        })?,
    };
    let part = match object.label(labels::PART) {
        None if parts == 1 => 1,
        None => {
            return Err(Denial::invalid(format!(
                "{title} is one of {parts} parts of a version and must say which; add the label {}, from \"1\" to \
                 \"{parts}\"",
                labels::PART
            )));
        }
        Some(text) => number(text, parts).ok_or_else(|| {
            Denial::invalid(format!(
                "{title} can't be a version: its label {} must be a number from 1 to {parts}, not {}; correct it or the \
                 annotation {}",
                labels::PART,
                quoted(text),
                labels::PARTS
            ))
        })?,
    };
    Ok((part, parts))
}

/// A number from 1 to `most` in its one usual form.
fn number(text: &str, most: usize) -> Option<usize> {
    let number: usize = text.parse().ok()?;
    ((1..=most).contains(&number) && number.to_string() == text).then_some(number)
}

/// The text in quotes, cut where it is long.
fn quoted(text: &str) -> String {
    format!("{:?}", text.chars().take(80).collect::<String>())
}

/// Denies owners: whoever deletes the owner would delete the version, past every rule.
pub(super) fn owners(object: &VersionObject) -> Result<(), Denial> {
    let Some(owner) = object.metadata.owner_references.iter().flatten().next() else { return Ok(()) };
    Err(Denial::invalid(format!(
        "{} belongs to {} {}, and a version must have no owner because it would be deleted together with it; remove \
         metadata.ownerReferences",
        object.part_title(),
        owner.kind,
        owner.name
    )))
}

fn secret_type(object: &VersionObject) -> Result<(), Denial> {
    if object.secret_type.as_deref() != Some(SERVICE_ACCOUNT_TOKEN) {
        return Ok(());
    }
    Err(Denial::invalid(format!(
        "{} is of type {SERVICE_ACCOUNT_TOKEN}, which the cluster itself fills in and changes; use the type Opaque",
        object.part_title()
    )))
}

fn content(object: &VersionObject) -> Result<(), Denial> {
    let title = object.part_title();
    let values = &object.content.0;
    for name in values.keys() {
        Key::new(name).map_err(|error| Denial::invalid(format!("{title} can't be a version: {error}")))?;
    }
    let bytes = object.content.bytes();
    let remedy = "make it smaller or spread it over several parts";
    if values.len() > MAX_KEYS {
        let keys = values.len();
        return Err(Denial::invalid(format!("{title} has {keys} keys, and {MAX_KEYS} are allowed; {remedy}")));
    }
    if let Some((key, value)) = values.iter().find(|(_, value)| value.len() > MAX_VALUE_BYTES) {
        let bytes = value.len();
        return Err(Denial::invalid(format!(
            "{title} has a value of {bytes} bytes for the key {key}, and {MAX_VALUE_BYTES} are allowed; make it smaller"
        )));
    }
    if bytes > MAX_DICTIONARY_BYTES {
        return Err(Denial::invalid(format!(
            "{title} has {bytes} bytes, and {MAX_DICTIONARY_BYTES} are allowed; {remedy}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use nudge_api::PartKind;
    use proptest::prelude::*;

    use super::*;
    use crate::fixtures::{message, part, set_annotation, set_label};

    fn config_map() -> VersionObject {
        part(PartKind::ConfigMap, "shop-1.0.1")
    }

    #[test]
    fn a_well_made_part_says_which_it_is() {
        let mut object = config_map();
        let id = check(&object).unwrap();
        assert_eq!((id.config.as_str(), id.version.as_str(), id.part, id.parts), ("shop", "1.0.1", 1, 1));
        set_annotation(&mut object, labels::PARTS, "16");
        set_label(&mut object, labels::PART, "16");
        assert_eq!(check(&object).map(|id| (id.part, id.parts)), Ok((16, 16)));
    }

    #[test]
    fn labels_must_be_names() {
        let mut object = config_map();
        set_label(&mut object, labels::CONFIG, "Shop");
        assert_eq!(
            message(check(&object)),
            "ConfigMap shop-1.0.1 can't be a version: config \"Shop\" is not allowed: it must be a DNS name: lower-case \
             letters, digits, '-' and '.', beginning and ending with a letter or digit, at most 253 characters; correct its \
             label nudge.dev/config"
        );
        let mut object = config_map();
        set_label(&mut object, labels::VERSION, "current");
        let refusal = message(check(&object));
        assert!(refusal.ends_with("choose another name; correct its label nudge.dev/version"), "{refusal}");
        object.metadata.labels.as_mut().unwrap().remove(labels::VERSION);
        assert_eq!(
            message(check(&object)),
            "ConfigMap shop-1.0.1 has the label nudge.dev/config but not nudge.dev/version, and a version needs both; add it"
        );
    }

    #[test]
    fn parts_are_numbered_and_bounded() {
        let with = |parts: Option<&str>, number: Option<&str>| {
            let mut object = config_map();
            if let Some(parts) = parts {
                set_annotation(&mut object, labels::PARTS, parts);
            }
            if let Some(number) = number {
                set_label(&mut object, labels::PART, number);
            }
            check(&object)
        };
        for (parts, number) in [(None, Some("1")), (Some("1"), None), (Some("3"), Some("2"))] {
            assert!(with(parts, number).is_ok(), "{parts:?} {number:?}");
        }
        assert_eq!(
            message(with(Some("2"), None)),
            "ConfigMap shop-1.0.1 is one of 2 parts of a version and must say which; add the label nudge.dev/part, from \"1\" \
             to \"2\""
        );
        assert_eq!(
            message(with(Some("17"), Some("1"))),
            "ConfigMap shop-1.0.1 can't be a version: its annotation nudge.dev/parts must be a number from 1 to 16, not \
             \"17\"; correct it"
        );
        assert_eq!(
            message(with(Some("2"), Some("3"))),
            "ConfigMap shop-1.0.1 can't be a version: its label nudge.dev/part must be a number from 1 to 2, not \"3\"; \
             correct it or the annotation nudge.dev/parts"
        );
        for odd in ["0", "", "01", "+1", "two", "-1"] {
            assert!(with(Some(odd), Some("1")).is_err() && with(Some("2"), Some(odd)).is_err(), "{odd}");
        }
        assert!(with(None, Some("2")).is_err());
    }

    #[test]
    fn a_version_has_no_owner() {
        let mut object = config_map();
        let owner = OwnerReference { kind: "Deployment".into(), name: "web".into(), ..OwnerReference::default() };
        object.metadata.owner_references = Some(vec![owner]);
        assert_eq!(
            message(check(&object)),
            "ConfigMap shop-1.0.1, part of version 1.0.1 of config shop, belongs to Deployment web, and a version must have no \
             owner because it would be deleted together with it; remove metadata.ownerReferences"
        );
    }

    #[test]
    fn secrets_that_the_cluster_fills_in_are_none() {
        let mut object = part(PartKind::Secret, "keys");
        assert!(check(&object).is_ok());
        object.secret_type = Some(SERVICE_ACCOUNT_TOKEN.into());
        assert!(message(check(&object)).contains("Secret keys, part of version 1.0.1 of config shop, is of type"));
    }

    #[test]
    fn a_version_is_immutable() {
        let mut object = config_map();
        object.immutable = false;
        assert_eq!(
            message(check(&object)),
            "ConfigMap shop-1.0.1, part of version 1.0.1 of config shop, must be immutable; set immutable: true"
        );
    }

    #[test]
    fn every_bound_of_the_content_is_kept() {
        let with = |content: &[(String, usize)]| {
            let mut object = config_map();
            object.content.0 = content.iter().map(|(key, length)| (key.clone(), vec![b'x'; *length])).collect();
            check(&object)
        };
        let keys = |count: usize| (0..count).map(|key| (key.to_string(), 0)).collect::<Vec<_>>();
        assert!(with(&keys(MAX_KEYS)).is_ok());
        assert!(message(with(&keys(MAX_KEYS + 1))).contains("has 8193 keys, and 8192 are allowed"));
        assert!(with(&[("a".into(), MAX_VALUE_BYTES)]).is_ok());
        assert!(message(with(&[("a".into(), MAX_VALUE_BYTES + 1)])).contains("for the key a"));
        let large: Vec<_> = ["a", "b", "c"].map(|key| (key.to_owned(), MAX_VALUE_BYTES)).into();
        assert!(with(&large).is_ok());
        let larger = [&large[..], &[("d".to_owned(), 1)]].concat();
        assert!(message(with(&larger)).contains("spread it over several parts"));
        assert!(
            message(with(&[("nudge.configs".into(), 1)])).contains("begin with 'nudge.' are Nudge's own; rename it")
        );
    }

    proptest! {
        #[test]
        fn whatever_the_labels_are_a_part_is_within_its_parts(number in ".{0,4}", parts in ".{0,4}") {
            let mut object = config_map();
            set_label(&mut object, labels::PART, &number);
            set_annotation(&mut object, labels::PARTS, &parts);
            match check(&object) {
                Ok(id) => prop_assert!(1 <= id.part && id.part <= id.parts && id.parts <= MAX_PARTS),
                Err(denial) => prop_assert!(denial.message.len() < 400),
            }
        }
    }
}
