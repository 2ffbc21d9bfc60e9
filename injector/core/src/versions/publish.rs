//! The published ConfigMap: what it should hold, why it can't, and whether somebody else has changed it.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use nudge_api::{Explanation, Reason};
use nudge_protocol::labels;

use super::digest::{contents_of, part_digest};

/// Annotation with the digest of what Nudge has written.
pub const DIGEST: &str = "nudge.dev/published-digest";
/// The ConfigMap of Kubernetes that is in every namespace.
const RESERVED: &str = "kube-root-ca.crt";
/// Most bytes of keys and values that a ConfigMap or a Secret can hold.
pub(super) const MAX_BYTES: usize = 1024 * 1024;

/// Text and bytes of a ConfigMap.
pub type Data = (BTreeMap<String, String>, BTreeMap<String, ByteString>);

/// What to do about the published ConfigMap.
#[derive(Clone, Debug, PartialEq)]
pub enum Publication {
    /// There is none, so there is nothing to publish.
    NotThere,
    /// It holds the version, as Nudge wrote it or by chance.
    Published,
    /// It held this version, and somebody else has changed it since.
    Drifted(String),
    /// It can't be written.
    Refused(Explanation),
    /// It is to be replaced by this, which keeps its resourceVersion.
    Replace(Box<ConfigMap>),
}

/// Decides about `plain`, which is to hold the ConfigMap parts of `version`. `published` is what the status says it holds. `data`
/// reads the parts, where that is needed; `None` says there are only Secrets. `writer` is the field manager of what Nudge writes.
pub fn publication(
    plain: Option<&ConfigMap>,
    version: &str,
    published: Option<&str>,
    data: Option<&Data>,
    writer: &str,
) -> Publication {
    let Some(plain) = plain else { return Publication::NotThere };
    let name = plain.metadata.name.as_deref().unwrap_or_default();
    let label = |label: &str| plain.metadata.labels.as_ref().and_then(|map| map.get(label)).map(String::as_str);
    if label(labels::CONFIG).is_some() {
        let message = format!("ConfigMap {name} is itself an object of a version; give the config another name");
        return Publication::Refused(Reason::IsVersion.explained(message));
    }
    let owned = plain.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty());
    if owned || name == RESERVED {
        let message =
            format!("ConfigMap {name} belongs to somebody else, who would overwrite it; give the config another name");
        return Publication::Refused(Reason::NotOurs.explained(message));
    }
    let Some((text, bytes)) = data else {
        let message = format!("version {version} has no ConfigMap part, so ConfigMap {name} stays as it is");
        return Publication::Refused(Reason::NoConfigMapPart.explained(message));
    };
    let expected = part_digest(&contents_of(Some(text.clone()), Some(bytes.clone())), None);
    let stored = part_digest(&contents_of(plain.data.clone(), plain.binary_data.clone()), None);
    let ours = label(labels::PUBLISHED) == Some(version);
    if published == Some(version) {
        // What somebody else wrote stays until the next activation.
        if stored != expected && !is_unrecorded(plain, version, &stored, writer) {
            return Publication::Drifted(format!(
                "ConfigMap {name} was changed by someone else and does not hold version {version}; the next activation \
                 overwrites it: make a version of the change"
            ));
        }
        if ours {
            return Publication::Published;
        }
    }
    if stored == expected && ours {
        return Publication::Published;
    }
    if plain.immutable == Some(true) {
        let message =
            format!("ConfigMap {name} is immutable, so it can't hold version {version}; delete it and create it anew");
        return Publication::Refused(Reason::Immutable.explained(message));
    }
    let size = text.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>()
        + bytes.iter().map(|(key, value)| key.len() + value.0.len()).sum::<usize>();
    if size > MAX_BYTES {
        let message = format!(
            "the ConfigMap parts of version {version} have {size} bytes, and one ConfigMap holds {MAX_BYTES}; use an agent"
        );
        return Publication::Refused(Reason::TooLarge.explained(message));
    }
    let mut next = plain.clone();
    next.metadata.managed_fields = None;
    next.metadata.labels.get_or_insert_default().insert(labels::PUBLISHED.to_owned(), version.to_owned());
    next.metadata.annotations.get_or_insert_default().insert(DIGEST.to_owned(), expected);
    next.data = (!text.is_empty()).then(|| text.clone());
    next.binary_data = (!bytes.is_empty()).then(|| bytes.clone());
    Publication::Replace(Box::new(next))
}

/// Whether it holds, unchanged, another version that Nudge wrote and could not record: the status was not written any more.
fn is_unrecorded(plain: &ConfigMap, version: &str, stored: &str, writer: &str) -> bool {
    let meta = &plain.metadata;
    let label = meta.labels.as_ref().and_then(|map| map.get(labels::PUBLISHED));
    let digest = meta.annotations.as_ref().and_then(|map| map.get(DIGEST));
    // A tool that applies a copy of an older state has the marks, too, and would apply it again and again.
    let of_others = meta.managed_fields.iter().flatten().any(|entry| {
        let fields = entry.fields_v1.as_ref().and_then(|fields| fields.0.pointer("/f:metadata/f:labels"));
        let label = fields.and_then(|fields| fields.get(format!("f:{}", labels::PUBLISHED)));
        label.is_some() && entry.manager.as_deref() != Some(writer)
    });
    label.is_some_and(|label| label != version) && digest.is_some_and(|digest| digest.starts_with(stored)) && !of_others
}

/// Why an existing ConfigMap is not made the first version of a config, if there is a reason.
pub fn baseline_refusal(plain: &ConfigMap) -> Option<&'static str> {
    let marks = plain.metadata.labels.as_ref();
    if plain.metadata.name.as_deref().is_some_and(|name| name == RESERVED) {
        Some("it belongs to Kubernetes")
    } else if marks.is_some_and(|marks| marks.contains_key(labels::PUBLISHED)) {
        Some("it was written for a config that was deleted; take its label nudge.dev/published away to begin anew")
    } else if plain.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty()) {
        Some("it belongs to its owner")
    } else if plain.immutable == Some(true) {
        Some("it is immutable")
    } else if marks.is_some_and(|marks| marks.contains_key(labels::CONFIG)) {
        Some("it is an object of a version")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, OwnerReference};
    use serde_json::json;

    use super::*;

    const WRITER: &str = "nudge-controller";

    fn data(value: &str) -> Data {
        (BTreeMap::from([("key".to_owned(), value.to_owned())]), BTreeMap::new())
    }

    fn plain(value: &str) -> ConfigMap {
        let mut map = ConfigMap { data: Some(data(value).0), ..ConfigMap::default() };
        map.metadata.name = Some("shop".to_owned());
        map.metadata.resource_version = Some("7".to_owned());
        map
    }

    fn written(map: Option<&ConfigMap>, version: &str, published: Option<&str>, value: &str) -> ConfigMap {
        match publication(map, version, published, Some(&data(value)), WRITER) {
            Publication::Replace(next) => *next,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn it_is_written_whole_and_marked_and_then_left() {
        let mut old = plain("old");
        old.data.as_mut().unwrap().insert("other".to_owned(), "x".to_owned());
        let next = written(Some(&old), "1", None, "new");
        assert_eq!(next.data, Some(data("new").0));
        assert_eq!(next.metadata.resource_version.as_deref(), Some("7"));
        assert_eq!(publication(Some(&next), "1", Some("1"), Some(&data("new")), WRITER), Publication::Published);
        assert_eq!(publication(None, "1", None, Some(&data("new")), WRITER), Publication::NotThere);
    }

    #[test]
    fn an_edit_by_others_stands_until_the_next_version() {
        let mut map = written(Some(&plain("old")), "1", None, "new");
        map.data = Some(data("edited").0);
        let found = publication(Some(&map), "1", Some("1"), Some(&data("new")), WRITER);
        assert!(matches!(found, Publication::Drifted(message) if message.contains("make a version of the change")));
        assert_eq!(written(Some(&map), "2", Some("1"), "newer").data, Some(data("newer").0));
    }

    fn label_of(manager: &str) -> ManagedFieldsEntry {
        let fields = json!({"f:metadata": {"f:labels": {"f:nudge.dev/published": {}}}});
        ManagedFieldsEntry {
            manager: Some(manager.to_owned()),
            fields_v1: Some(FieldsV1(fields)),
            ..Default::default()
        }
    }

    #[test]
    fn a_version_of_ours_that_was_not_recorded_is_taken_back() {
        // Version 2 was written while it was tried, and the status still says 1.
        let mut map = written(Some(&plain("one")), "2", Some("1"), "two");
        for fields in [None, Some(vec![label_of(WRITER)])] {
            map.metadata.managed_fields = fields;
            let back = written(Some(&map), "1", Some("1"), "one");
            assert_eq!(back.data, Some(data("one").0));
            assert_eq!(back.metadata.labels.unwrap()[labels::PUBLISHED], "1");
        }
        let drifts = |map: &ConfigMap| {
            let found = publication(Some(map), "1", Some("1"), Some(&data("one")), WRITER);
            matches!(found, Publication::Drifted(_))
        };
        let mut applied = map.clone();
        applied.metadata.managed_fields = Some(vec![label_of("kubectl")]);
        assert!(drifts(&applied), "a copy with our marks that somebody applied");
        map.data = Some(data("edited").0);
        assert!(drifts(&map), "version 2 was edited");
    }

    #[test]
    fn what_cannot_be_written_is_said() {
        let reason = |map: &ConfigMap, data: Option<&Data>| match publication(Some(map), "1", None, data, WRITER) {
            Publication::Refused(explanation) => explanation.reason.as_str(),
            other => panic!("{other:?}"),
        };
        let mut fixed = plain("old");
        fixed.immutable = Some(true);
        assert_eq!(reason(&fixed, Some(&data("new"))), "Immutable");
        assert_eq!(reason(&plain("old"), None), "NoConfigMapPart");
        assert_eq!(reason(&plain("old"), Some(&data(&"x".repeat(MAX_BYTES + 1)))), "TooLarge");
        let mut version = plain("old");
        version.metadata.labels = Some([(labels::CONFIG.to_owned(), "shop".to_owned())].into());
        assert_eq!(reason(&version, Some(&data("new"))), "IsVersion");
    }

    #[test]
    fn only_plain_objects_of_users_are_taken_over() {
        assert_eq!(baseline_refusal(&plain("x")), None);
        let mut root = plain("x");
        root.metadata.name = Some("kube-root-ca.crt".to_owned());
        assert!(baseline_refusal(&root).is_some());
        let mut owned = plain("x");
        owned.metadata.owner_references = Some(vec![OwnerReference::default()]);
        assert!(baseline_refusal(&owned).is_some());
        assert!(matches!(
            publication(Some(&owned), "1", None, Some(&data("x")), WRITER),
            Publication::Refused(Explanation { reason: Reason::NotOurs, .. })
        ));
        let written = written(Some(&plain("old")), "1", None, "new");
        assert!(baseline_refusal(&written).is_some(), "a config that was deleted does not come back by itself");
    }
}
