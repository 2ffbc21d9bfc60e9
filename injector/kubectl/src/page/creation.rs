//! The creation of versions: the program that wrote the first object, the time, and the origin of the content.

use std::collections::{BTreeMap, BTreeSet};

use kube::api::ObjectMeta;
use nudge_api::VersionedConfig;
use nudge_protocol::labels;
use serde::Serialize;

use crate::failure::Failure;
use crate::session::{FIELD_MANAGER, Session};
use crate::version::stored::{label, objects, origin};

/// The maximum number of versions whose creation is sent.
const MAX_VERSIONS: usize = 1000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Creation {
    /// The program that wrote the object first, as it named itself.
    by: Option<String>,
    /// The time, in seconds since 1970.
    at: Option<i64>,
    /// The origin of the content, as a source has found it, or as the creator says.
    from: Option<String>,
    /// The number of objects of the version.
    objects: u32,
}

/// Returns the creation of each version, sealed or not.
pub(crate) async fn creations(
    session: &Session,
    config: &VersionedConfig,
) -> Result<BTreeMap<String, Creation>, Failure> {
    let versions = config.status.iter().flat_map(|status| &status.versions);
    let sealed = versions.flat_map(|version| &version.parts).map(|part| part.uid.as_str()).collect();
    let (objects, _) = objects(session, config.metadata.name.as_deref().unwrap_or_default(), None).await?;
    Ok(creations_by_version(objects.iter().map(|(_, meta)| meta), &sealed))
}

/// Returns the creations from the objects of versions. An origin is believed only from parts of sealed versions, which
/// have these uids, because anybody may create other objects with the same labels.
fn creations_by_version<'a>(
    objects: impl Iterator<Item = &'a ObjectMeta>,
    sealed: &BTreeSet<&str>,
) -> BTreeMap<String, Creation> {
    let mut creations: BTreeMap<String, Creation> = BTreeMap::new();
    for meta in objects.filter(|meta| meta.deletion_timestamp.is_none()) {
        let version = label(meta, labels::VERSION);
        if version.is_empty() || creations.len() >= MAX_VERSIONS && !creations.contains_key(version) {
            continue;
        }
        let created_second = meta.creation_timestamp.as_ref().map(|created_second| created_second.0.as_second());
        let is_part = meta.uid.as_deref().is_some_and(|uid| sealed.contains(uid));
        let from = origin(meta).filter(|_| is_part).map(|origin| origin.phrase());
        let first = Creation { by: program(meta), at: created_second, from, objects: 0 };
        let creation = creations.entry(version.to_owned()).or_insert_with(|| first.clone());
        if created_second < creation.at {
            (creation.by, creation.at) = (first.by, created_second);
        }
        creation.from = creation.from.take().or(first.from);
        creation.objects += 1;
    }
    creations
}

/// Returns the field manager that wrote the object first.
fn program(meta: &ObjectMeta) -> Option<String> {
    let managers = meta.managed_fields.iter().flatten();
    let first = managers.min_by_key(|entry| entry.time.as_ref().map(|time| time.0));
    let manager = first?.manager.as_deref()?;
    Some(if manager == FIELD_MANAGER { "kubectl nudge".to_owned() } else { manager.to_owned() })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn meta(version: &str, at: &str, managers: &Value) -> ObjectMeta {
        serde_json::from_value(json!({"name": "x", "labels": {"nudge.dev/version": version}, "creationTimestamp": at,
            "managedFields": managers}))
        .unwrap()
    }

    #[test]
    fn who_wrote_the_first_object_first_is_its_maker() {
        let managers = |first: &str| json!([{"manager": "later", "time": "2026-01-02T00:00:00Z"}, {"manager": first, "time": "2026-01-01T00:00:00Z"}]);
        let found = [
            meta("1", "2026-01-01T00:00:05Z", &managers("flux")),
            meta("1", "2026-01-01T00:00:00Z", &managers(FIELD_MANAGER)),
            meta("2", "2026-01-01T00:00:00Z", &json!(null)),
            meta("", "2026-01-01T00:00:00Z", &json!(null)),
        ];
        let creations = creations_by_version(found.iter(), &BTreeSet::new());
        let one = Creation { by: Some("kubectl nudge".to_owned()), at: Some(1_767_225_600), from: None, objects: 2 };
        assert_eq!((creations.len(), &creations["1"]), (2, &one));
        assert_eq!(creations["2"].by, None);
    }

    #[test]
    fn the_first_sealed_object_that_says_it_says_where_a_version_is_from() {
        let from = |origins: &[&str]| {
            let object_with = |(number, origin): (usize, &&str)| {
                let annotations = Some([(labels::ORIGIN.to_owned(), (*origin).to_owned())].into());
                let uid = Some(number.to_string());
                ObjectMeta { annotations, uid, ..meta("1", "2026-01-01T00:00:00Z", &json!(null)) }
            };
            let found: Vec<ObjectMeta> = origins.iter().enumerate().map(object_with).collect();
            creations_by_version(found.iter(), &BTreeSet::from(["1", "2"]))["1"].from.clone()
        };
        let git = json!({"kind": "Git", "url": "https://git.example.com/shop"}).to_string();
        let planted = json!({"kind": "Git", "url": "https://evil.example/shop"}).to_string();
        assert_eq!(from(&[&planted, "{}", &git]).as_deref(), Some("says it is from Git https://git.example.com/shop"));
        assert_eq!(from(&[&planted, "", "{}"]), None);
    }

    #[test]
    fn no_more_versions_are_named_than_can_be_shown() {
        let found: Vec<ObjectMeta> =
            (0..=MAX_VERSIONS).map(|at| meta(&at.to_string(), "2026-01-01T00:00:00Z", &json!(null))).collect();
        assert_eq!(creations_by_version(found.iter(), &BTreeSet::new()).len(), MAX_VERSIONS);
    }
}
