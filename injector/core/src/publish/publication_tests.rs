//! Decisions about published objects, for both kinds.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, OwnerReference};
use nudge_api::{PartKind, Reason};
use nudge_protocol::labels;
use serde_json::{Value, json};

use super::publication::{DIGEST_ANNOTATION, MAX_OBJECT_BYTES};
use super::*;
use crate::derived_keys::ContentKey;
use crate::identity::Identity;
use crate::keys::ConfigKey;
use crate::versions::Seals;

const WRITER: &str = "nudge-controller";
const TLS: &str = "kubernetes.io/tls";
const KINDS: [PartKind; 2] = [PartKind::ConfigMap, PartKind::Secret];

fn seals() -> Seals {
    let key = ContentKey::new(b"key");
    let config = nudge_api::VersionedConfig::new("shop", nudge_api::VersionedConfigSpec::default());
    Seals::new(&key, &ConfigKey::parse("ns", "shop").unwrap(), Identity::of(&config))
}

fn typed(secret_type: Option<&str>, pairs: &[(&str, &str)]) -> PublishedObject {
    let bytes = pairs.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())));
    Secret { type_: secret_type.map(str::to_owned), data: Some(bytes.collect()), ..Secret::default() }.into()
}

/// An object of users with this value.
fn plain(kind: PartKind, value: &str) -> PublishedObject {
    match kind {
        PartKind::ConfigMap => {
            let data = [("password".to_owned(), value.to_owned())];
            ConfigMap { data: Some(data.into()), ..ConfigMap::default() }.into()
        }
        PartKind::Secret => typed(None, &[("password", value)]),
    }
}

fn content(kind: PartKind, value: &str) -> PublishedContent {
    plain(kind, value).content
}

fn goal<'a>(
    version: &'a str,
    published: Option<&'a str>,
    (kind, content): (PartKind, Option<&'a PublishedContent>),
    seals: &'a Seals,
) -> PublishGoal<'a> {
    let object_use = ObjectUse::Published;
    PublishGoal { kind, name: "shop", version, object_use, published, content, seals, writer: WRITER }
}

fn decide(
    stored: Option<&PublishedObject>,
    version: &str,
    published: Option<&str>,
    content: &PublishedContent,
    kind: PartKind,
) -> Publication {
    decide_publication(stored, &goal(version, published, (kind, Some(content)), &seals()))
}

fn written(kind: PartKind, stored: Option<PublishedObject>, version: &str, value: &str) -> PublishedObject {
    let (content, seals) = (content(kind, value), seals());
    object_to_write(stored, &goal(version, None, (kind, Some(&content)), &seals)).unwrap()
}

fn reason(stored: Option<&PublishedObject>, kind: PartKind, content: Option<&PublishedContent>) -> Reason {
    match decide_publication(stored, &goal("1", None, (kind, content), &seals())) {
        Publication::Refused(explanation) => explanation.reason,
        other => panic!("{other:?}"),
    }
}

/// The object whose fields somebody manages.
fn managed(mut object: PublishedObject, manager: &str, operation: &str, fields: Value) -> PublishedObject {
    let entry = ManagedFieldsEntry {
        manager: Some(manager.to_owned()),
        operation: Some(operation.to_owned()),
        fields_v1: Some(FieldsV1(fields)),
        ..ManagedFieldsEntry::default()
    };
    object.metadata.managed_fields = Some(vec![entry]);
    object
}

#[test]
fn it_is_written_whole_and_marked_and_then_left() {
    for kind in KINDS {
        let (one, two) = (content(kind, "one"), content(kind, "two"));
        let begun = if kind.is_created() { None } else { Some(plain(kind, "old")) };
        assert_eq!(decide(begun.as_ref(), "1", None, &one, kind), Publication::Write);
        let mut made = written(kind, begun, "1", "one");
        made.metadata.resource_version = Some("7".to_owned());
        assert_eq!(decide(Some(&made), "1", Some("1"), &one, kind), Publication::Published);
        assert_eq!(decide(Some(&made), "2", Some("1"), &two, kind), Publication::Write);
        let next = written(kind, Some(made), "2", "two");
        assert!(next.content.values().keys().eq(["password"]), "a key that the next version does not have is gone");
        assert_eq!(
            (next.metadata.resource_version.as_deref(), next.metadata.name.as_deref()),
            (Some("7"), Some("shop"))
        );
        // The same content under another name is another version.
        assert_eq!(decide(Some(&next), "3", Some("2"), &two, kind), Publication::Write);
    }
    let none = decide(None, "1", None, &content(PartKind::ConfigMap, "one"), PartKind::ConfigMap);
    assert_eq!(none, Publication::NotThere);
}

#[test]
fn text_stays_text_and_bytes_stay_bytes() {
    let bytes = |key: &str, value: &str| {
        let binary: BTreeMap<_, _> = [(key.to_owned(), ByteString(value.as_bytes().to_vec()))].into();
        PublishedObject::from(ConfigMap { binary_data: Some(binary), ..ConfigMap::default() }).content
    };
    let text = content(PartKind::ConfigMap, "one");
    let joined =
        |before: PublishedContent, part| PublishedContent::join(Some(before), part, "1").unwrap_or_else(|_| panic!());
    let keys = |content: PublishedContent| {
        let metadata = written(PartKind::ConfigMap, None, "1", "x").metadata;
        let map = PublishedObject { kind: PartKind::ConfigMap, metadata, immutable: None, content }.config_map();
        (map.data.unwrap_or_default().into_keys().collect(), map.binary_data.unwrap_or_default().into_keys().collect())
    };
    let (password, raw) = (|| vec!["password".to_owned()], || vec!["raw".to_owned()]);
    assert_eq!(keys(joined(text.clone(), bytes("raw", "b"))), (password(), raw()));
    assert_eq!(keys(joined(text.clone(), bytes("password", "b"))), (vec![], password()), "the last part decides");
    assert_eq!(keys(joined(bytes("password", "b"), text)), (password(), vec![]));
}

#[test]
fn the_type_is_that_of_the_parts() {
    let kind = PartKind::Secret;
    let part = |secret_type, pairs: &[(&str, &str)]| typed(secret_type, pairs).content;
    let both =
        PublishedContent::join(Some(part(Some(TLS), &[("tls.crt", "c")])), part(Some(TLS), &[("tls.key", "k")]), "1")
            .unwrap_or_else(|_| panic!());
    let seals = seals();
    let made = object_to_write(None, &goal("1", None, (kind, Some(&both)), &seals)).unwrap().secret();
    assert_eq!((made.0.type_.as_deref(), made.0.data.as_ref().map(BTreeMap::len)), (Some(TLS), Some(2)));
    let mixed = PublishedContent::join(Some(both), part(None, &[("other", "o")]), "1").err().unwrap();
    assert_eq!(mixed.reason, Reason::TypeNotAllowed);
    assert!(mixed.message.contains("kubernetes.io/tls and Opaque"), "{mixed}");
    let other = part(Some(TLS), &[("password", "one")]);
    assert_eq!(reason(Some(&written(kind, None, "1", "one")), kind, Some(&other)), Reason::OtherType);
    for not in ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token", "helm.sh/release.v1"] {
        assert_eq!(reason(None, kind, Some(&part(Some(not), &[]))), Reason::TypeNotAllowed, "{not}");
    }
    for allowed in ["kubernetes.io/dockerconfigjson", "kubernetes.io/basic-auth", "example.com/own"] {
        assert_eq!(decide(None, "1", None, &part(Some(allowed), &[]), kind), Publication::Write, "{allowed}");
    }
}

#[test]
fn a_secret_of_somebody_else_is_never_adopted() {
    let kind = PartKind::Secret;
    let one = content(kind, "one");
    let refused = |stored: &PublishedObject| reason(Some(stored), kind, Some(&one));
    assert_eq!(refused(&plain(kind, "one")), Reason::NotOurs, "it has no label, but the same content");
    let labelled = |value: &str| {
        let mut stored = typed(None, &[]);
        stored.metadata.labels = Some([(labels::PUBLISHED.to_owned(), value.to_owned())].into());
        stored
    };
    // Somebody has made it for Nudge, which then needs no right to create any.
    let made = managed(labelled(""), "eso", "Update", json!({"f:metadata": {"f:labels": {}}, "f:type": {}}));
    assert_eq!(decide(Some(&made), "1", None, &one, kind), Publication::Write);
    let fields = json!({"f:data": {".": {}, "f:password": {}}});
    assert_eq!(refused(&managed(labelled("1"), "eso", "Update", fields.clone())), Reason::NotOurs);
    let ours = || written(kind, None, "0", "zero");
    assert_eq!(refused(&managed(ours(), "eso", "Apply", fields.clone())), Reason::NotOurs);
    let edited = managed(ours(), "eso", "Update", fields);
    assert_eq!(decide(Some(&edited), "1", None, &one, kind), Publication::Write, "an edit is overwritten");
}

#[test]
fn what_belongs_to_an_owner_or_to_a_version_is_left_alone() {
    for kind in KINDS {
        let refused = |change: fn(&mut PublishedObject)| {
            let mut stored = written(kind, None, "0", "zero");
            change(&mut stored);
            reason(Some(&stored), kind, Some(&content(kind, "one")))
        };
        let owned = refused(|stored| stored.metadata.owner_references = Some(vec![OwnerReference::default()]));
        assert_eq!(owned, Reason::NotOurs);
        let version = refused(|stored| {
            stored.metadata.labels.as_mut().unwrap().insert(labels::CONFIG.to_owned(), "shop".to_owned());
        });
        assert_eq!(version, Reason::IsVersion);
        assert_eq!(refused(|stored| stored.immutable = Some(true)), Reason::Immutable);
    }
}

/// The decision about an object with the text "two" that gives way to version 1 with the text "one".
fn decide_left(kind: PartKind, stored: &PublishedObject, left: &str, needs_label: bool) -> Publication {
    let (one, text, seals) = (content(kind, "one"), content(kind, left), seals());
    let object_use = ObjectUse::LeftText { text: &text, needs_label };
    decide_publication(Some(stored), &PublishGoal { object_use, ..goal("1", None, (kind, Some(&one)), &seals) })
}

#[test]
fn a_text_that_gives_way_is_written_and_no_other() {
    for kind in KINDS {
        let two = plain(kind, "two");
        assert_eq!(decide_left(kind, &two, "two", false), Publication::Write, "a Secret needs no label of ours");
        assert!(matches!(decide_left(kind, &two, "three", false), Publication::OtherText(_)), "a correction stays");
        assert_eq!(decide_left(kind, &plain(kind, "one"), "two", false), Publication::Published);
        assert!(matches!(decide_left(kind, &two, "two", true), Publication::OtherText(_)), "the namespace wants it");
        let mut labelled = plain(kind, "two");
        labelled.metadata.labels = Some([(labels::BASELINE.to_owned(), "true".to_owned())].into());
        assert_eq!(decide_left(kind, &labelled, "two", true), Publication::Write);
        let (one, text, seals) = (content(kind, "one"), content(kind, "two"), seals());
        let object_use = ObjectUse::LeftText { text: &text, needs_label: false };
        let next =
            object_to_write(Some(labelled), &PublishGoal { object_use, ..goal("1", None, (kind, Some(&one)), &seals) })
                .unwrap();
        let keys: Vec<_> = next.metadata.labels.unwrap().into_keys().collect();
        assert_eq!((keys, next.metadata.annotations), (vec![labels::BASELINE.into(), labels::FOLLOWS.into()], None));
    }
}

#[test]
fn nobody_who_would_write_again_is_fought() {
    for kind in KINDS {
        let refused = |publication| match publication {
            Publication::Refused(explanation) => Some(explanation),
            _ => None,
        };
        let by_text = |stored: &PublishedObject| {
            let explanation = refused(decide_left(kind, stored, "two", false))?;
            let message = explanation.message;
            assert!(
                message.starts_with(&format!("{kind} shop does not get the text of version 1 back, because ")),
                "{message}"
            );
            assert!(!message.contains("another name"), "{message}");
            Some(explanation.reason)
        };
        let by_version = |mut stored: PublishedObject| {
            stored.metadata.annotations = written(kind, None, "0", "zero").metadata.annotations;
            stored.metadata.labels = written(kind, None, "0", "zero").metadata.labels;
            refused(decide(Some(&stored), "1", None, &content(kind, "one"), kind)).map(|explanation| explanation.reason)
        };
        for (field, operation, expected) in [
            ("f:data", "Apply", Some(Reason::NotOurs)),
            ("f:binaryData", "Apply", Some(Reason::NotOurs)),
            ("f:data", "Update", None),
            ("f:metadata", "Apply", None),
        ] {
            let stored = || managed(plain(kind, "two"), "argocd", operation, json!({field: {"f:password": {}}}));
            assert_eq!((by_text(&stored()), by_version(stored())), (expected, expected), "{kind} {field} {operation}");
        }
        let owned = || {
            let mut owned = plain(kind, "two");
            owned.metadata.owner_references = Some(vec![OwnerReference::default()]);
            owned
        };
        assert_eq!((by_text(&owned()), by_version(owned())), (Some(Reason::NotOurs), Some(Reason::NotOurs)));
        let mut immutable = plain(kind, "two");
        immutable.immutable = Some(true);
        assert_eq!(by_text(&immutable), Some(Reason::Immutable));
    }
    let kind = PartKind::ConfigMap;
    let same = managed(plain(kind, "one"), "argocd", "Apply", json!({"f:data": {}}));
    assert_eq!(decide(Some(&same), "1", None, &content(kind, "one"), kind), Publication::Write, "only the label");
}

#[test]
fn an_edit_by_others_stands_until_the_next_version() {
    for kind in KINDS {
        let (one, two) = (content(kind, "one"), content(kind, "two"));
        let mut stored = written(kind, None, "1", "one");
        stored.content = content(kind, "edited");
        let drifted = decide(Some(&stored), "1", Some("1"), &one, kind);
        assert!(matches!(&drifted, Publication::Drifted(message) if message.contains("make a version of it")));
        assert_eq!(decide(Some(&stored), "2", Some("1"), &two, kind), Publication::Write);
    }
}

#[test]
fn a_version_of_ours_that_was_not_recorded_is_taken_back() {
    for kind in KINDS {
        let one = content(kind, "one");
        let label = json!({"f:metadata": {"f:labels": {"f:nudge.dev/published": {}}}});
        // Version 2 was written while it was tried, and the status still says 1.
        let tried = || written(kind, None, "2", "two");
        let back = |stored: &PublishedObject| decide(Some(stored), "1", Some("1"), &one, kind);
        assert_eq!(back(&tried()), Publication::Write);
        assert_eq!(back(&managed(tried(), WRITER, "Update", label.clone())), Publication::Write);
        let applied = managed(tried(), "kubectl", "Update", label);
        assert!(matches!(back(&applied), Publication::Drifted(_)), "a copy with our marks that somebody applied");
        let mut edited = tried();
        edited.content = content(kind, "edited");
        assert!(matches!(back(&edited), Publication::Drifted(_)), "version 2 was edited");
    }
}

#[test]
fn what_cannot_be_written_is_said() {
    for kind in KINDS {
        let stored = written(kind, None, "0", "zero");
        assert_eq!(reason(Some(&stored), kind, None), kind.without_part());
        let large = content(kind, &"x".repeat(MAX_OBJECT_BYTES + 1));
        assert_eq!(reason(Some(&stored), kind, Some(&large)), Reason::TooLarge);
    }
}

#[test]
fn nothing_that_is_decided_or_marked_holds_a_value() {
    let kind = PartKind::Secret;
    let stored = || written(kind, None, "1", "hunter2");
    let found = managed(stored(), "eso", "Apply", json!({"f:data": {"f:password": {}}}));
    for stored in [None, Some(&found)] {
        for published in [None, Some("1")] {
            let text = format!("{:?}", decide(stored, "1", published, &content(kind, "hunter2"), kind));
            assert!(!text.contains("hunter2"), "{text}");
        }
    }
    let marks = |version: &str| {
        written(kind, None, version, "hunter2").metadata.annotations.unwrap()[DIGEST_ANNOTATION].clone()
    };
    assert_ne!(marks("1"), marks("2"), "two versions can't be compared");
    assert!(marks("1").starts_with("seal:"));
}
