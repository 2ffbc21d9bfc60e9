//! Divides the content of a version into objects that the API server accepts. The division depends on the content
//! alone.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nudge_api::PartKind;
use nudge_core::publish::PublishedObject;
use nudge_core::versions::{Contents, MAX_PARTS, PartNumber};
use nudge_protocol::{ConfigName, VersionName, labels};
use zeroize::Zeroizing;

use crate::content::{Content, ContentError};

/// The maximum size of the keys and values of one part, below the 1 MiB that an object may have.
const MAX_PART_BYTES: usize = 1_000_000;
/// The default type of Secrets.
pub const OPAQUE: &str = "Opaque";

/// The content of one object.
pub struct Part {
    /// The kind of the object.
    pub kind: PartKind,
    /// The keys and values of the object.
    pub content: Contents,
}

impl Part {
    /// Returns the size of all keys and values.
    pub fn bytes(&self) -> usize {
        self.content.iter().map(|(key, value)| key.len().saturating_add(value.len())).fold(0, usize::saturating_add)
    }
}

/// The history limit for versions of the same maker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The history limit of the config applies (`spec.historyLimit`).
    Config,
    /// The given number of the newest versions is kept.
    Newest(u32),
}

/// Divides the content. Starts with the largest value, and puts each into the first part with room.
pub fn divide(content: Content) -> Result<Vec<Part>, ContentError> {
    let mut parts = fill(PartKind::ConfigMap, content.open);
    parts.extend(fill(PartKind::Secret, content.secret));
    if parts.len() > MAX_PARTS {
        return Err(ContentError::TooManyParts(parts.len()));
    }
    Ok(parts)
}

fn fill(kind: PartKind, content: Contents) -> Vec<Part> {
    let mut values: Vec<(String, Zeroizing<Vec<u8>>)> = content.into_iter().collect();
    let size = |(key, value): &(String, Zeroizing<Vec<u8>>)| key.len() + value.len();
    values.sort_by(|left, right| size(right).cmp(&size(left)).then_with(|| left.0.cmp(&right.0)));
    let mut parts: Vec<(usize, Contents)> = Vec::new();
    for value in values {
        let value_size = size(&value);
        match parts.iter_mut().find(|(used, _)| used + value_size <= MAX_PART_BYTES) {
            Some((used, part)) => {
                *used += value_size;
                part.insert(value.0, value.1);
            }
            None => parts.push((value_size, Contents::from([value]))),
        }
    }
    parts.into_iter().map(|(_, content)| Part { kind, content }).collect()
}

/// The facts that all objects of a version share.
#[derive(Clone, Copy, Debug)]
pub struct Common<'a> {
    /// The name of the config.
    pub config: &'a ConfigName,
    /// The name of the version.
    pub version: &'a VersionName,
    /// The number of versions that the history limit keeps.
    pub keep: Keep,
    /// The type of the version's Secrets.
    pub secret_type: &'a str,
    /// The origin of the content, for the annotation nudge.dev/origin.
    pub origin: Option<&'a str>,
    /// The user who set the spec of the source, for the annotation nudge.dev/set-by.
    pub set_by: Option<&'a str>,
}

fn metadata(common: &Common<'_>, number: PartNumber, name: &str) -> ObjectMeta {
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    let keep = match common.keep {
        Keep::Config => "true".to_owned(),
        Keep::Newest(versions) => versions.to_string(),
    };
    let pairs =
        [(labels::CONFIG, common.config.as_str()), (labels::VERSION, common.version.as_str()), (labels::PRUNE, &keep)];
    let mut part_labels: BTreeMap<String, String> = pairs.map(owned).into();
    if number.count() > 1 {
        part_labels.insert(labels::PART.to_owned(), number.number().to_string());
    }
    let count = (number.count() > 1).then(|| number.count().to_string());
    let annotations =
        [(labels::PARTS, count.as_deref()), (labels::ORIGIN, common.origin), (labels::SET_BY, common.set_by)];
    let annotations: BTreeMap<_, _> =
        annotations.into_iter().filter_map(|(key, value)| Some(owned((key, value?)))).collect();
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(part_labels),
        annotations: (!annotations.is_empty()).then_some(annotations),
        ..ObjectMeta::default()
    }
}

/// Returns the object of the part that has this number.
pub fn object(part: &Part, common: &Common<'_>, number: PartNumber, name: &str) -> PublishedObject {
    PublishedObject::immutable(part.kind, metadata(common, number, name), part.content.clone(), common.secret_type)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn content(open: &[(String, usize)], secret: &[(String, usize)]) -> Content {
        let mut content = Content::default();
        for (secret, pairs) in [(false, open), (true, secret)] {
            for (key, size) in pairs {
                content.add(secret, key.clone(), vec![b'x'; *size]).unwrap();
            }
        }
        content
    }

    fn number_of(number: usize, count: usize) -> PartNumber {
        PartNumber::sequence(count).nth(number - 1).unwrap()
    }

    fn made(part: &Part, number: PartNumber, keep: Keep) -> PublishedObject {
        let (config, version) = (ConfigName::new("shop").unwrap(), VersionName::new("1.0.1").unwrap());
        object(
            part,
            &Common { config: &config, version: &version, keep, secret_type: OPAQUE, origin: None, set_by: None },
            number,
            "shop-1.0.1",
        )
    }

    #[test]
    fn a_small_version_is_one_object_without_a_number() {
        let parts = divide(content(&[("a".into(), 1), ("b".into(), 2)], &[])).unwrap();
        assert_eq!(parts.len(), 1);
        let json = serde_json::to_value(made(&parts[0], number_of(1, 1), Keep::Config).config_map()).unwrap();
        assert_eq!(
            json["metadata"]["labels"],
            serde_json::json!({"nudge.dev/config": "shop", "nudge.dev/version": "1.0.1", "nudge.dev/prune": "true"})
        );
        assert_eq!((json["immutable"].as_bool(), json["metadata"].get("annotations")), (Some(true), None));
    }

    #[test]
    fn a_secret_is_a_part_of_its_own_and_bytes_are_binary() {
        let mut both = content(&[], &[("pin".into(), 4)]);
        both.add(false, "raw".into(), vec![0xff]).unwrap();
        let parts = divide(both).unwrap();
        let objects: Vec<PublishedObject> = parts
            .iter()
            .zip(PartNumber::sequence(2))
            .map(|(part, number)| made(part, number, Keep::Newest(3)))
            .collect();
        let [map, secret] = &objects[..] else { panic!("not one of each") };
        assert_eq!((map.kind, secret.kind), (PartKind::ConfigMap, PartKind::Secret));
        let map = map.config_map();
        assert!(map.data.is_none() && map.binary_data.as_ref().unwrap().contains_key("raw"));
        assert_eq!(secret.metadata.labels.as_ref().unwrap()[labels::PART], "2");
        assert_eq!(secret.metadata.labels.as_ref().unwrap()[labels::PRUNE], "3");
        assert_eq!(secret.metadata.annotations.as_ref().unwrap()[labels::PARTS], "2");
    }

    #[test]
    fn a_value_of_a_whole_mebibyte_fits_alone() {
        let parts = divide(content(&[("big".into(), 1 << 20), ("small".into(), 1)], &[])).unwrap();
        assert_eq!(parts.iter().map(|part| part.content.len()).collect::<Vec<_>>(), [1, 1]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_every_part_fits(
            open in proptest::collection::btree_map("a[a-z]{1,8}", 0_usize..700_000, 0..8),
            secret in proptest::collection::btree_map("b[a-z]{1,8}", 0_usize..700_000, 0..8),
        ) {
            let (open, secret): (Vec<_>, Vec<_>) = (open.into_iter().collect(), secret.into_iter().collect());
            let again = divide(content(&open, &secret)).unwrap();
            let parts = divide(content(&open, &secret)).unwrap();
            prop_assert_eq!(parts.len(), again.len());
            let mut found = Vec::new();
            for (part, same) in parts.iter().zip(&again) {
                prop_assert!(part.content == same.content && part.kind == same.kind);
                prop_assert!(part.content.values().map(|value| value.len()).sum::<usize>() <= 1 << 20);
                found.extend(part.content.iter().map(|(key, value)| (part.kind, key.clone(), value.len())));
            }
            found.sort();
            let expected = open.into_iter().map(|(key, size)| (PartKind::ConfigMap, key, size));
            let expected: Vec<_> = expected.chain(secret.into_iter().map(|(key, size)| (PartKind::Secret, key, size))).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
