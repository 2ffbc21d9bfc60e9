use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, OwnerReference};
use ring::hmac;
use serde_json::{Value, json};

use super::*;
use crate::identity::Identity;
use crate::keys::ConfigKey;

const WRITER: &str = "nudge-controller";
const TLS: &str = "kubernetes.io/tls";

fn seals() -> Seals {
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"key");
    let config = nudge_api::VersionedConfig::new("shop", nudge_api::VersionedConfigSpec::default());
    Seals::new(&key, &ConfigKey::parse("ns", "shop").unwrap(), Identity::of(&config))
}

fn secret(type_: Option<&str>, pairs: &[(&str, &str)]) -> Secret {
    let bytes = pairs.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())));
    Secret { type_: type_.map(str::to_owned), data: Some(bytes.collect()), ..Secret::default() }
}

fn data(type_: Option<&str>, value: &str) -> SecretData {
    SecretData::with(None, secret(type_, &[("password", value)]), "1").unwrap_or_else(|error| panic!("{error}"))
}

fn decide(
    found: Option<&Secret>,
    version: &str,
    published: Option<&str>,
    data: Option<&SecretData>,
) -> SecretPublication {
    let seals = seals();
    let wanted = SecretWanted { name: "shop", version, published, data, seals: &seals, writer: WRITER };
    secret_publication(found, &wanted)
}

fn written(found: Option<Secret>, version: &str, value: &str) -> Secret {
    published_secret(found, "shop", version, &data(None, value), &seals())
}

fn reason(found: Option<&Secret>, data: Option<&SecretData>) -> &'static str {
    match decide(found, "1", None, data) {
        SecretPublication::Refused(explanation) => explanation.reason.as_str(),
        other => panic!("{other:?}"),
    }
}

/// A Secret whose fields somebody else manages.
fn managed(mut secret: Secret, operation: &str, fields: Value) -> Secret {
    let entry = ManagedFieldsEntry {
        manager: Some("external-secrets".to_owned()),
        operation: Some(operation.to_owned()),
        fields_v1: Some(FieldsV1(fields)),
        ..ManagedFieldsEntry::default()
    };
    secret.metadata.managed_fields = Some(vec![entry]);
    secret
}

#[test]
fn it_is_created_replaced_whole_and_then_left() {
    let one = data(None, "one");
    assert_eq!(decide(None, "1", None, Some(&one)), SecretPublication::Write);
    let mut made = written(None, "1", "one");
    assert_eq!((made.type_.as_deref(), made.metadata.name.as_deref()), (Some("Opaque"), Some("shop")));
    made.metadata.resource_version = Some("7".to_owned());
    assert_eq!(decide(Some(&made), "1", Some("1"), Some(&one)), SecretPublication::Published);
    // A key that the next version does not have is gone.
    made.data.as_mut().unwrap().insert("old".to_owned(), ByteString(b"x".to_vec()));
    let two = data(None, "two");
    assert_eq!(decide(Some(&made), "2", Some("1"), Some(&two)), SecretPublication::Write);
    let next = written(Some(made), "2", "two");
    assert_eq!(next.data.as_ref().unwrap().keys().collect::<Vec<_>>(), ["password"]);
    assert_eq!(next.metadata.resource_version.as_deref(), Some("7"));
    // The same content under another name is another version.
    assert_eq!(decide(Some(&next), "3", Some("2"), Some(&two)), SecretPublication::Write);
}

#[test]
fn the_type_is_that_of_the_parts() {
    let tls = SecretData::with(None, secret(Some(TLS), &[("tls.crt", "c")]), "1").unwrap_or_else(|_| panic!());
    let both = SecretData::with(Some(tls), secret(Some(TLS), &[("tls.key", "k")]), "1").unwrap_or_else(|_| panic!());
    let made = published_secret(None, "shop", "1", &both, &seals());
    assert_eq!((made.type_.as_deref(), made.data.as_ref().map(BTreeMap::len)), (Some(TLS), Some(2)));
    let mixed = SecretData::with(Some(both), secret(None, &[("other", "o")]), "1").err().unwrap();
    assert_eq!(mixed.reason, Reason::TypeNotAllowed);
    assert!(mixed.message.contains("kubernetes.io/tls and Opaque"), "{mixed}");
    assert_eq!(reason(Some(&written(None, "1", "one")), Some(&data(Some(TLS), "one"))), "OtherType");
    for type_ in ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token", "helm.sh/release.v1"] {
        assert_eq!(reason(None, Some(&data(Some(type_), "x"))), "TypeNotAllowed", "{type_}");
    }
    for type_ in ["kubernetes.io/dockerconfigjson", "kubernetes.io/basic-auth", "example.com/own"] {
        assert_eq!(decide(None, "1", None, Some(&data(Some(type_), "x"))), SecretPublication::Write, "{type_}");
    }
}

#[test]
fn one_of_somebody_else_is_never_adopted() {
    let one = data(None, "one");
    let refused = |found: &Secret| reason(Some(found), Some(&one));
    assert_eq!(refused(&secret(None, &[("password", "one")])), "NotOurs", "it has no label, but the same content");
    let labelled = |value: &str| {
        let mut found = secret(None, &[]);
        found.metadata.labels = Some([(labels::PUBLISHED.to_owned(), value.to_owned())].into());
        found
    };
    // Somebody has made it for Nudge, which then needs no right to create any.
    let made = managed(labelled(""), "Update", json!({"f:metadata": {"f:labels": {}}, "f:type": {}}));
    assert_eq!(decide(Some(&made), "1", None, Some(&one)), SecretPublication::Write);
    let fields = json!({"f:data": {".": {}, "f:password": {}}});
    assert_eq!(refused(&managed(labelled("1"), "Update", fields.clone())), "NotOurs");
    let ours = written(None, "0", "zero");
    assert_eq!(refused(&managed(ours.clone(), "Apply", fields.clone())), "NotOurs");
    let edited = managed(ours.clone(), "Update", fields);
    assert_eq!(decide(Some(&edited), "1", None, Some(&one)), SecretPublication::Write, "an edit is overwritten");
    let mut owned = ours.clone();
    owned.metadata.owner_references = Some(vec![OwnerReference::default()]);
    assert_eq!(refused(&owned), "NotOurs");
    let mut version = ours;
    version.metadata.labels.as_mut().unwrap().insert(labels::CONFIG.to_owned(), "shop".to_owned());
    assert_eq!(refused(&version), "IsVersion");
}

#[test]
fn an_edit_by_others_stands_until_the_next_version() {
    let (one, two) = (data(None, "one"), data(None, "two"));
    let mut found = written(None, "1", "one");
    found.data = secret(None, &[("password", "edited")]).data;
    let drifted = decide(Some(&found), "1", Some("1"), Some(&one));
    assert!(
        matches!(&drifted, SecretPublication::Drifted(message) if message.contains("make a version of the change"))
    );
    assert_eq!(decide(Some(&found), "2", Some("1"), Some(&two)), SecretPublication::Write);
    // Version 2 was written while it was tried, and the status still says 1.
    let mut tried = written(Some(found), "2", "two");
    assert_eq!(decide(Some(&tried), "1", Some("1"), Some(&one)), SecretPublication::Write);
    tried.data = secret(None, &[("password", "edited")]).data;
    assert!(matches!(decide(Some(&tried), "1", Some("1"), Some(&one)), SecretPublication::Drifted(_)));
}

#[test]
fn what_cannot_be_written_is_said() {
    let one = data(None, "one");
    assert_eq!(reason(None, None), "NoSecretPart");
    assert_eq!(reason(None, Some(&data(None, &"x".repeat(MAX_BYTES + 1)))), "TooLarge");
    let mut fixed = written(None, "0", "zero");
    fixed.immutable = Some(true);
    assert_eq!(reason(Some(&fixed), Some(&one)), "Immutable");
}

#[test]
fn nothing_that_is_decided_or_marked_holds_a_value() {
    let one = data(None, "hunter2");
    let found = managed(written(None, "1", "hunter2"), "Apply", json!({"f:data": {"f:password": {}}}));
    for found in [None, Some(&found)] {
        for published in [None, Some("1")] {
            let text = format!("{:?}", decide(found, "1", published, Some(&one)));
            assert!(!text.contains("hunter2"), "{text}");
        }
    }
    let marks =
        |version: &str, value: &str| written(None, version, value).metadata.annotations.unwrap()[DIGEST].clone();
    assert_ne!(marks("1", "hunter2"), marks("2", "hunter2"), "two versions can't be compared");
    assert!(marks("1", "hunter2").starts_with("seal:"));
}
