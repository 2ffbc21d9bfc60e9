//! Whatever versions come and go: those that are requested or in use are sealed, and the lists stay within their room.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{Consent, PartKind, VersionedConfigStatus};
use proptest::prelude::*;
use proptest::sample::Index;

use super::inventory::{Inventory, take_inventory};
use super::rule_verdicts::Judging;
use super::seal::tests::seals;
use super::seal_check::tests::{facts, part};
use super::version_room::{MAX_BYTES, MAX_FREE_VERSIONS};
use super::{ContentDigests, FactsByUid, MAX_RETIRED_VERSIONS, MAX_VERSIONS, SealCheck, is_of_source};
use crate::keys::PartMeta;

/// The versions of one config, and their state.
#[derive(Default)]
struct Cluster {
    /// The objects that are there, by version.
    versions: BTreeMap<String, Vec<PartMeta>>,
    deleted: BTreeMap<String, Vec<PartMeta>>,
    facts: FactsByUid,
    named: Option<String>,
    status: VersionedConfigStatus,
    made: u16,
}

impl Cluster {
    /// Creates a version with the given number of parts, whose names are longer than needed by the given number of
    /// characters. Returns its name.
    fn create(&mut self, (parts, name_bytes): (usize, usize), marked: bool, of_source: bool) -> String {
        self.made += 1;
        let number = self.made;
        let mut objects: Vec<PartMeta> = (1..=parts)
            .map(|at| PartMeta {
                uid: format!("0af7651c-d43b-41d5-{at:04x}-{number:012x}"),
                part: Some(at.to_string()),
                parts: Some(parts.to_string()),
                created: i64::from(number),
                ..part(PartKind::ConfigMap, &format!("{}-{number}-{at}", "n".repeat(name_bytes)), "")
            })
            .collect();
        let known = objects.iter().zip(1..).map(|(object, at): (_, u16)| super::PartFacts {
            marked,
            ..facts(object, &format!("{number:024x}{at:024x}"))
        });
        let known: Vec<_> = known.collect();
        let digests = || ContentDigests::of_facts(known.iter().map(|known| (PartKind::ConfigMap, known)));
        let of_contents = || digests().source_version(&seals());
        let version = if of_source { of_contents() } else { format!("2026.11.{number}") };
        for object in &mut objects {
            object.version.clone_from(&version);
        }
        self.facts.extend(known.into_iter().map(|known| (known.uid.clone(), known)));
        self.versions.insert(version.clone(), objects);
        version
    }

    fn delete(&mut self, version: &str) {
        self.deleted.extend(self.versions.remove_entry(version));
    }

    fn restore(&mut self, version: &str) {
        self.versions.extend(self.deleted.remove_entry(version));
    }

    /// Returns the version that `spec.version` names, or else the current version, or else the first version that may
    /// become current by itself.
    fn wish(&self) -> Option<&str> {
        let first = || self.status.versions.iter().find(|sealed| sealed.consent.is_none());
        let wish = self.named.as_deref().or(self.status.current_version.as_deref());
        wish.or_else(|| first().map(|sealed| sealed.version.as_str()))
    }

    fn is_needed(&self, version: &str) -> bool {
        let is_published = self.status.published_version.as_deref() == Some(version);
        self.wish() == Some(version) || self.status.holds(version) || is_published
    }

    /// Takes an inventory of all versions, and stores its results.
    fn look(&mut self) -> Inventory {
        let parts: Vec<Arc<PartMeta>> = self.versions.values().flatten().cloned().map(Arc::new).collect();
        let named = self.named.as_deref();
        let now = Time(Timestamp::from_second(1_790_000_000).unwrap());
        let found = take_inventory(&self.status, &parts, &self.facts, &[], named, &Judging::NONE, &seals(), &now);
        self.status.versions.clone_from(&found.sealed);
        self.status.internal.retired.clone_from(&found.retired);
        self.status.desired_version = self.wish().map(str::to_owned);
        found
    }

    /// Continues a rollout, or begins one.
    fn roll(&mut self) {
        let status = &mut self.status;
        let wish = self.named.as_deref().and_then(|named| status.version(named));
        let wish = wish.filter(|wish| wish.consent != Some(Consent::NeededAnew)).map(|wish| wish.version.clone());
        if let Some(target) = status.target_version.take() {
            status.previous_version = status.current_version.replace(target);
        } else {
            status.target_version = wish;
        }
    }
}

/// The bytes of a list in the status, without its brackets.
fn bytes(list: &[impl serde::Serialize]) -> usize {
    serde_json::to_string(list).unwrap().len() - 2
}

/// The versions that are not sealed, with why.
fn refusals(found: &Inventory) -> BTreeMap<&str, &str> {
    let invalid = found.others.iter().filter_map(|(version, seal_check)| match seal_check {
        SealCheck::Invalid(message) => Some((version.as_str(), message.as_str())),
        _ => None,
    });
    invalid.collect()
}

#[test]
fn one_version_after_another_that_is_requested_finds_room() {
    let mut cluster = Cluster::default();
    // About 3.7 KiB each.
    let large = (16, 60);
    for _ in 0..8 {
        cluster.create(large, true, false);
    }
    cluster.look();
    for _ in 0..6 {
        let wish = cluster.create(large, true, false);
        cluster.named = Some(wish.clone());
        cluster.look();
        let names: Vec<_> = cluster.status.versions.iter().map(|sealed| &sealed.version).collect();
        assert!(cluster.status.version(&wish).is_some(), "{wish} of {names:?}");
        cluster.roll();
        cluster.roll();
        assert_eq!(cluster.status.current_version, Some(wish));
    }
}

/// Creates a config with versions of these sizes, marked or not.
fn filled(count: usize, size: (usize, usize), marked: bool) -> Cluster {
    let mut cluster = Cluster::default();
    for _ in 0..count {
        cluster.create(size, marked, false);
    }
    cluster.look();
    cluster
}

fn names(cluster: &Cluster) -> Vec<&str> {
    cluster.status.versions.iter().map(|sealed| sealed.version.as_str()).collect()
}

#[test]
fn what_is_refused_for_lack_of_room_says_what_to_delete() {
    let mut cluster = filled(MAX_VERSIONS, (1, 0), true);
    let found = cluster.look();
    assert_eq!(names(&cluster).len(), MAX_FREE_VERSIONS, "places are kept");
    let why = refusals(&found)["2026.11.46"];
    let bytes = why.split_once("45 versions with ").and_then(|(_, rest)| rest.split_once(' ')).map(|(bytes, _)| bytes);
    assert_eq!(
        why,
        format!(
            "version 2026.11.46 has no room: the config has 45 versions with {} bytes of the status, and a config holds at most 50 with \
             24576 bytes; 5 places are kept for versions that are requested or in use; delete some that are not needed, such as \
             2026.11.2",
            bytes.unwrap_or_default()
        )
    );
    let mut cluster = filled(30, (1, 0), false);
    let found = cluster.look();
    assert_eq!(names(&cluster).len(), MAX_VERSIONS / 2);
    let why = refusals(&found)["2026.11.30"];
    let rule = "bytes of the status that users without the right to activate them have made, and a config holds at most 25 of these with 12288 bytes; \
                delete some that are not needed, such as 2026.11.1";
    assert!(
        why.starts_with("version 2026.11.30 has no room: the config has 25 versions with ") && why.ends_with(rule),
        "{why}"
    );
    cluster.delete("2026.11.1");
    assert!(cluster.look().find("2026.11.26").is_some(), "there is room again");
}

#[test]
fn unmarked_versions_give_way_first_and_then_the_oldest_and_no_more_than_needed() {
    let mut cluster = filled(36, (1, 0), true);
    let unmarked: Vec<String> = (0..9).map(|_| cluster.create((1, 0), false, false)).collect();
    cluster.status.current_version = Some("2026.11.1".to_owned());
    cluster.look();
    assert_eq!(names(&cluster).len(), MAX_FREE_VERSIONS);
    let mut gone: Vec<String> = Vec::new();
    for _ in 0..15 {
        cluster.named = Some(cluster.create((1, 0), true, false));
        let before: Vec<String> = names(&cluster).into_iter().map(str::to_owned).collect();
        cluster.look();
        gone.extend(before.into_iter().filter(|version| cluster.status.version(version).is_none()));
    }
    // The first found the places that are kept.
    let oldest = "2026.11.2".to_owned();
    assert_eq!(gone, unmarked.iter().chain([&oldest]).cloned().collect::<Vec<_>>());
    let remembered: Vec<_> = cluster.status.internal.retired.iter().map(|retired| &retired.version).collect();
    assert_eq!(remembered, gone.iter().collect::<Vec<_>>());
}

#[test]
fn one_that_gave_way_comes_back_with_its_content_where_it_is_requested() {
    let mut cluster = filled(MAX_FREE_VERSIONS, (1, 0), true);
    let unmarked = cluster.create((1, 0), false, false);
    cluster.named = Some("2026.11.1".to_owned());
    cluster.delete("2026.11.9");
    cluster.look();
    assert!(cluster.status.version(&unmarked).is_some());
    for _ in 0..6 {
        cluster.named = Some(cluster.create((1, 0), true, false));
        cluster.look();
    }
    assert!(cluster.status.version(&unmarked).is_none());
    // The content of the version was known when the spec named it, so naming it is consent.
    cluster.named = Some(unmarked.clone());
    let found = cluster.look();
    assert_eq!(
        (found.new.as_slice(), found.find(&unmarked).unwrap().consent),
        ([unmarked.clone()].as_slice(), Some(Consent::Needed))
    );
    assert!(cluster.status.internal.retired.iter().all(|retired| retired.version != unmarked));
    // A version that is named before it exists, or while it is gone, needs consent again.
    cluster.delete(&unmarked);
    cluster.look();
    cluster.restore(&unmarked);
    assert_eq!(cluster.look().find(&unmarked).unwrap().consent, Some(Consent::NeededAnew));
}

#[test]
fn one_that_gave_way_and_has_other_content_is_refused() {
    let mut cluster = filled(MAX_FREE_VERSIONS, (1, 0), true);
    for _ in 0..6 {
        cluster.named = Some(cluster.create((1, 0), true, false));
        cluster.look();
    }
    let uid = &cluster.versions["2026.11.1"][0].uid;
    cluster.facts.get_mut(uid).unwrap().plain = Some("sha256:other".to_owned());
    cluster.named = Some("2026.11.1".to_owned());
    let found = cluster.look();
    assert!(refusals(&found)["2026.11.1"].contains("had other content"), "{:?}", refusals(&found));
}

#[test]
fn half_of_the_room_refuses_no_unmarked_version_that_is_named() {
    let mut cluster = filled(MAX_VERSIONS / 2, (1, 0), false);
    let version = cluster.create((1, 0), false, false);
    assert!(refusals(&cluster.look()).contains_key(version.as_str()));
    cluster.named = Some(version.clone());
    let found = cluster.look();
    assert!(found.find(&version).is_some() && found.find("2026.11.1").is_none());
    assert_eq!(found.sealed.len(), MAX_VERSIONS / 2);
}

#[derive(Clone, Debug)]
enum Event {
    Created { count: usize, size: (usize, usize), marked: bool, of_source: bool },
    Deleted(Index),
    Restored(Index),
    Named(Index),
    Unnamed,
    Rolled,
    Published,
}

fn event() -> impl Strategy<Value = Event> {
    let created = (1_usize..12, 1_usize..17, 0_usize..61, any::<bool>(), proptest::bool::weighted(0.2));
    prop_oneof![
        6 => created.prop_map(|(count, parts, name, marked, of_source)| {
            Event::Created { count, size: (parts, name), marked, of_source }
        }),
        1 => any::<Index>().prop_map(Event::Deleted),
        1 => any::<Index>().prop_map(Event::Restored),
        4 => any::<Index>().prop_map(Event::Named),
        1 => Just(Event::Unnamed),
        4 => Just(Event::Rolled),
        1 => Just(Event::Published),
    ]
}

fn nth(versions: &BTreeMap<String, Vec<PartMeta>>, index: Index) -> Option<String> {
    (!versions.is_empty()).then(|| versions.keys().nth(index.index(versions.len())).cloned()).flatten()
}

impl Cluster {
    fn happens(&mut self, event: &Event) {
        match *event {
            Event::Created { count, size, marked, of_source } => {
                for _ in 0..count {
                    self.create(size, marked, of_source);
                }
            }
            Event::Deleted(index) => {
                if let Some(version) = nth(&self.versions, index) {
                    self.delete(&version);
                }
            }
            Event::Restored(index) => {
                if let Some(version) = nth(&self.deleted, index) {
                    self.restore(&version);
                }
            }
            Event::Named(index) => self.named = nth(&self.versions, index).or(self.named.take()),
            Event::Unnamed => self.named = None,
            Event::Rolled => self.roll(),
            Event::Published => self.status.published_version.clone_from(&self.status.current_version),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_is_needed_is_sealed_and_the_lists_are_bounded_and_stand_still(
        events in proptest::collection::vec(event(), 1..40)
    ) {
        let mut cluster = Cluster::default();
        for event in events {
            cluster.happens(&event);
            let needed: Vec<String> =
                cluster.versions.keys().filter(|version| cluster.is_needed(version)).cloned().collect();
            let before = cluster.status.clone();
            let found = cluster.look();
            let refused = refusals(&found);
            for version in &needed {
                prop_assert!(found.find(version).is_some(), "{event:?}: {version} is needed: {:?}", refused.get(version.as_str()));
            }
            prop_assert!(found.sealed.len() <= MAX_VERSIONS && found.retired.len() <= MAX_RETIRED_VERSIONS);
            let size = bytes(&found.sealed) + bytes(&found.retired);
            prop_assert!(size <= MAX_BYTES, "{event:?}: {size} bytes");
            let unmarked: Vec<_> = found.sealed.iter().filter(|sealed| sealed.consent.is_some()).collect();
            let within_half = unmarked.len() <= MAX_VERSIONS / 2 && bytes(&unmarked) <= MAX_BYTES / 2;
            let all_needed = unmarked.iter().all(|sealed| needed.contains(&sealed.version));
            prop_assert!(within_half || all_needed, "{event:?}: {} bytes of {}", bytes(&unmarked), unmarked.len());
            // A version that gave way is remembered, with the reason why it is not sealed.
            for gone in before.versions.iter().filter(|gone| found.find(&gone.version).is_none()) {
                let version = gone.version.as_str();
                let is_there = cluster.versions.contains_key(version);
                let digests: Vec<&str> = gone.parts.iter().map(|part| part.digest.as_str()).collect();
                let remembered = found.retired.iter().any(|retired| retired.version == version && retired.digests == digests);
                prop_assert!(remembered || is_of_source(version) || !is_there, "{event:?}: {version} is forgotten");
                let why = refused.get(version).copied().unwrap_or_default();
                prop_assert!(!is_there || why.contains("has no room"), "{event:?}: {version}: {why:?}");
            }
            let again = cluster.look();
            prop_assert_eq!((&again.sealed, &again.retired), (&found.sealed, &found.retired), "{:?}", event);
            prop_assert_eq!(&again.others, &found.others, "{:?}", event);
        }
    }
}
