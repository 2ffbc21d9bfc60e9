//! The fate of versions: sealed, retired, restored, refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{InternalStatus, PartKind, RetiredVersion, VersionState, VersionedConfigStatus};
use proptest::prelude::*;

use super::inventory::{Inventory, take_inventory};
use super::rule_verdicts::Judging;
use super::seal::tests::seals;
use super::seal_check::tests::{facts, part};
use super::seal_check::{FactsByUid, SealCheck};
use super::version_room::MAX_RETIRED_VERSIONS;
use crate::keys::PartMeta;

fn at() -> Time {
    Time(k8s_openapi::jiff::Timestamp::from_second(1).unwrap())
}

fn known(parts: &[(Arc<PartMeta>, &str)]) -> (Vec<Arc<PartMeta>>, FactsByUid) {
    let facts = parts.iter().map(|(part, content)| (part.uid.clone(), facts(part, content))).collect();
    (parts.iter().map(|(part, _)| Arc::clone(part)).collect(), facts)
}

fn object(name: &str, version: &str, uid: &str) -> Arc<PartMeta> {
    Arc::new(PartMeta { uid: uid.to_owned(), ..part(PartKind::ConfigMap, name, version) })
}

fn after(inventory: &Inventory) -> VersionedConfigStatus {
    VersionedConfigStatus {
        versions: inventory.sealed.clone(),
        internal: InternalStatus { retired: inventory.retired.clone(), ..InternalStatus::default() },
        ..VersionedConfigStatus::default()
    }
}

#[test]
fn a_version_is_sealed_retired_and_taken_back() {
    let (parts, facts) = known(&[(object("shop-1", "1", "u1"), "x")]);
    let first =
        take_inventory(&VersionedConfigStatus::default(), &parts, &facts, &[], None, &Judging::NONE, &seals(), &at());
    assert_eq!(first.new, ["1"]);
    let gone = take_inventory(&after(&first), &[], &FactsByUid::new(), &[], None, &Judging::NONE, &seals(), &at());
    assert!(gone.sealed.is_empty());
    assert_eq!(gone.retired[0].digests, ["sha256:x"]);

    let (same, facts) = known(&[(object("shop-1", "1", "u2"), "x")]);
    let back = take_inventory(&after(&gone), &same, &facts, &[], None, &Judging::NONE, &seals(), &at());
    assert_eq!((back.new.len(), back.retired.len(), back.sealed[0].parts[0].uid.as_str()), (1, 0, "u2"));

    let (other, facts) = known(&[(object("shop-1", "1", "u3"), "y")]);
    let refused = take_inventory(&after(&gone), &other, &facts, &[], None, &Judging::NONE, &seals(), &at());
    assert!(refused.sealed.is_empty() && matches!(refused.others["1"], SealCheck::Invalid(_)));
    assert_eq!(refused.retired.len(), 1, "the digest is still known");
}

#[test]
fn a_part_put_back_between_two_looks_needs_the_same_content() {
    let (parts, facts) = known(&[(object("shop-1", "1", "u1"), "x")]);
    let first =
        take_inventory(&VersionedConfigStatus::default(), &parts, &facts, &[], None, &Judging::NONE, &seals(), &at());
    let (same, same_facts) = known(&[(object("shop-1", "1", "u2"), "x")]);
    assert_eq!(
        take_inventory(&after(&first), &same, &FactsByUid::new(), &[], None, &Judging::NONE, &seals(), &at())
            .unread
            .len(),
        1
    );
    assert_eq!(
        take_inventory(&after(&first), &same, &same_facts, &[], None, &Judging::NONE, &seals(), &at()).sealed[0].parts
            [0]
        .uid,
        "u2"
    );
    let (other, other_facts) = known(&[(object("shop-1", "1", "u3"), "y")]);
    let broken = take_inventory(&after(&first), &other, &other_facts, &[], None, &Judging::NONE, &seals(), &at());
    assert_eq!((broken.sealed[0].state, broken.conflicts.len()), (VersionState::Broken, 1));
    let mended = take_inventory(&after(&broken), &same, &same_facts, &[], None, &Judging::NONE, &seals(), &at());
    assert_eq!((mended.sealed[0].state, mended.conflicts.len()), (VersionState::Available, 0));
}

#[test]
fn a_part_put_back_is_the_same_part_and_immutable() {
    let (parts, facts) = known(&[(object("shop-1", "1", "u1"), "x")]);
    let first =
        take_inventory(&VersionedConfigStatus::default(), &parts, &facts, &[], None, &Judging::NONE, &seals(), &at());
    let (same, mut open) = known(&[(object("shop-1", "1", "u2"), "x")]);
    open.get_mut("u2").unwrap().immutable = false;
    let refused = take_inventory(&after(&first), &same, &open, &[], None, &Judging::NONE, &seals(), &at());
    assert!(refused.conflicts[0].contains("without immutable: true and is not used"), "{:?}", refused.conflicts);
    let numbered = Arc::new(PartMeta { parts: Some("2".to_owned()), ..(*object("shop-1", "1", "u2")).clone() });
    let (other, facts) = known(&[(numbered, "x")]);
    let refused = take_inventory(&after(&first), &other, &facts, &[], None, &Judging::NONE, &seals(), &at());
    assert!(refused.conflicts[0].contains("as another part and is not used"), "{:?}", refused.conflicts);
    assert_eq!(refused.sealed[0].parts[0].uid, "u1");
}

#[test]
fn a_name_stays_with_its_version() {
    let (parts, facts) = known(&[(object("a", "1", "u1"), "x")]);
    let first =
        take_inventory(&VersionedConfigStatus::default(), &parts, &facts, &[], None, &Judging::NONE, &seals(), &at());
    let (taken, facts) = known(&[(object("a", "2", "u2"), "y")]);
    let mut status = after(&first);
    for _ in 0..3 {
        let found = take_inventory(&status, &taken, &facts, &[], None, &Judging::NONE, &seals(), &at());
        let SealCheck::Invalid(message) = &found.others["2"] else { panic!("{:?}", found.others) };
        assert_eq!(
            message,
            "ConfigMap a can't be part of version 2, because an object of that name is part of version 1; delete it and \
             create it under another name"
        );
        assert_eq!((found.sealed[0].state, found.retired.len()), (VersionState::Broken, 0));
        status = after(&found);
    }
    let gone = take_inventory(&status, &[], &facts, &[], None, &Judging::NONE, &seals(), &at());
    assert_eq!(gone.retired.len(), 1);
    assert_eq!(take_inventory(&after(&gone), &taken, &facts, &[], None, &Judging::NONE, &seals(), &at()).new, ["2"]);
}

#[test]
fn a_late_object_is_not_part_of_a_sealed_version() {
    let (mut parts, facts) = known(&[(object("shop-1", "1", "u1"), "x")]);
    let first =
        take_inventory(&VersionedConfigStatus::default(), &parts, &facts, &[], None, &Judging::NONE, &seals(), &at());
    parts.push(object("late", "1", "u2"));
    let later = take_inventory(&after(&first), &parts, &facts, &[], None, &Judging::NONE, &seals(), &at());
    assert_eq!(later.sealed, first.sealed);
    assert!(later.conflicts[0].starts_with("ConfigMap late has the labels of version 1"), "{:?}", later.conflicts);
}

#[test]
fn secrets_that_cannot_be_seen_are_not_gone() {
    let secret = Arc::new(part(PartKind::Secret, "keys-1", "1"));
    let (parts, facts) = known(&[(secret, "x")]);
    let first =
        take_inventory(&VersionedConfigStatus::default(), &parts, &facts, &[], None, &Judging::NONE, &seals(), &at());
    assert_eq!(
        take_inventory(&after(&first), &[], &facts, &[PartKind::Secret], None, &Judging::NONE, &seals(), &at()).sealed,
        first.sealed
    );
    assert!(take_inventory(&after(&first), &[], &facts, &[], None, &Judging::NONE, &seals(), &at()).sealed.is_empty());
}

#[test]
fn the_older_version_is_sealed_first_and_digests_are_bounded() {
    let young = Arc::new(PartMeta { created: 9, ..part(PartKind::ConfigMap, "a", "1") });
    let old = Arc::new(PartMeta { created: 3, ..part(PartKind::ConfigMap, "b", "2") });
    let (parts, facts) = known(&[(young, "x"), (old, "y")]);
    let found =
        take_inventory(&VersionedConfigStatus::default(), &parts, &facts, &[], None, &Judging::NONE, &seals(), &at());
    assert_eq!(found.new, ["2", "1"]);
    let retired = (0..MAX_RETIRED_VERSIONS + 3).map(|n| RetiredVersion { version: n.to_string(), digests: Vec::new() });
    let internal = InternalStatus { retired: retired.collect(), ..InternalStatus::default() };
    let many = VersionedConfigStatus { internal, ..VersionedConfigStatus::default() };
    let bounded = take_inventory(&many, &[], &FactsByUid::new(), &[], None, &Judging::NONE, &seals(), &at());
    assert_eq!((bounded.retired.len(), bounded.retired[0].version.as_str()), (MAX_RETIRED_VERSIONS, "3"));
}

proptest! {
    /// Whatever comes and goes: the content of a sealed version never changes, and no name is sealed twice.
    #[test]
    fn a_sealed_version_never_changes(steps in proptest::collection::vec((0_usize..3, 0_usize..3, any::<bool>()), 1..40)) {
        let mut status = VersionedConfigStatus::default();
        let mut cluster: BTreeMap<usize, (Arc<PartMeta>, String)> = BTreeMap::new();
        let mut known: BTreeMap<String, String> = BTreeMap::new();
        for (step, (name, content, create)) in steps.into_iter().enumerate() {
            if create {
                let part = object(&format!("o{name}"), &format!("v{}", name % 2), &format!("u{step}"));
                cluster.insert(name, (part, content.to_string()));
            } else {
                cluster.remove(&name);
            }
            let parts: Vec<Arc<PartMeta>> = cluster.values().map(|(part, _)| Arc::clone(part)).collect();
            let facts = cluster.values().map(|(part, content)| (part.uid.clone(), facts(part, content))).collect();
            let found = take_inventory(&status, &parts, &facts, &[], None, &Judging::NONE, &seals(), &at());
            let mut names: Vec<&String> = found.sealed.iter().map(|sealed| &sealed.version).collect();
            names.dedup();
            prop_assert_eq!(names.len(), found.sealed.len());
            for sealed in &found.sealed {
                let digest = sealed.parts[0].digest.clone();
                let first = known.entry(sealed.version.clone()).or_insert_with(|| digest.clone());
                prop_assert_eq!(&*first, &digest);
            }
            status = after(&found);
        }
    }
}
