//! The content that is served from stored parts.

use nudge_core::versions::part_digest;
use nudge_protocol::limits::MAX_VALUE_BYTES;
use nudge_protocol::volumes::ObjectKind;

use super::*;
use crate::contents::fixtures::{UID, content_key, part, seals};

fn made(parts: Vec<(PartStatus, Part)>) -> Result<Content, HubProblem> {
    let (sealed, stored): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
    assemble("1", &sealed, stored, &seals(UID))
}

fn reason(made: Result<Content, HubProblem>) -> HubReason {
    made.err().unwrap().reason
}

#[test]
fn parts_become_one_block() {
    let one = part(PartKind::ConfigMap, "a", 1, &[("x", b"1".to_vec())]);
    let two = part(PartKind::Secret, "b", 2, &[("pin", b"0000".to_vec())]);
    let content = made(vec![one, two]).ok().unwrap();
    let values = block::decode(&content.block).unwrap();
    let values: Vec<_> = values.iter().map(|(key, stored)| (key.as_str(), stored.kind, stored.value)).collect();
    assert_eq!(values, [("pin", ObjectKind::Secret, &b"0000"[..]), ("x", ObjectKind::ConfigMap, b"1")]);
    assert_eq!(content.secrets, ["Secret/b"]);
    assert_eq!(content.sha256, Some(BlockDigest::of_hash(digest(&SHA256, &content.block).as_ref())));
}

#[test]
fn a_sealed_secret_is_served_in_its_place_and_config_only() {
    let sealed_as = |identity: &str, version: &str, number: usize| {
        let (mut status, stored) = part(PartKind::Secret, "b", 1, &[("pin", b"0000".to_vec())]);
        status.digest = seals(identity).seal(version, number, &part_digest(&stored.contents, Some(&content_key())));
        made(vec![(status, stored)])
    };
    assert!(sealed_as(UID, "1", 1).is_ok());
    for other in [sealed_as("other", "1", 1), sealed_as(UID, "2", 1), sealed_as(UID, "1", 2)] {
        assert_eq!(reason(other), HubReason::Changed);
    }
}

#[test]
fn what_is_not_as_it_was_sealed_is_not_served() {
    let good = || part(PartKind::ConfigMap, "a", 1, &[("x", b"1".to_vec())]);
    let (status, mut other) = good();
    other.uid = "another".to_owned();
    let refusal = made(vec![(status, other)]).err().unwrap();
    assert_eq!(refusal.reason, HubReason::Changed);
    assert_eq!(
        refusal.message,
        "version 1: ConfigMap a is not what was sealed; create the version again with the content it had, or make \
         another version current"
    );
    let (status, mut other) = good();
    other.contents.insert("y".to_owned(), Zeroizing::new(Vec::new()));
    assert_eq!(reason(made(vec![(status, other)])), HubReason::Changed);
    let (mut status, other) = good();
    status.digest = part_digest(&other.contents, Some(&content_key()));
    assert_eq!(reason(made(vec![(status, other)])), HubReason::Changed);
    let twice = part(PartKind::ConfigMap, "b", 2, &[("x", b"2".to_vec())]);
    assert_eq!(reason(made(vec![good(), twice])), HubReason::Changed);
    let reserved = part(PartKind::ConfigMap, "a", 1, &[("nudge.configs", b"2".to_vec())]);
    assert_eq!(reason(made(vec![reserved])), HubReason::Changed);
}

#[test]
fn what_no_agent_would_take_is_too_large() {
    let value = vec![0; MAX_VALUE_BYTES];
    let four = ["a", "b", "c", "d"].map(|name| part(PartKind::ConfigMap, name, 1, &[(name, value.clone())]));
    assert_eq!(reason(made(four.into())), HubReason::TooLarge);
}
