//! All versions of a config together: what is sealed stays sealed, what became complete is sealed, what is gone is retired,
//! what does not belong is named.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{
    Consent, InvalidVersion, PartKind, PartStatus, RetiredVersion, VersionState, VersionStatus, VersionedConfigStatus,
};

use serde::Serialize;

use super::facts::object_name;
use super::judged::{Judgement, Judging, Unjudged, bounded, judge};
use super::seal::Seals;
use super::seal_check::{Facts, SealCheck, facts_of, part_number, stand};
use super::source_name::is_of_source;
use crate::governance::short_digest;
use crate::keys::PartMeta;

/// Most sealed versions of one config.
pub const MAX_VERSIONS: usize = 50;
/// Most deleted versions that are remembered; the oldest are forgotten first.
pub const MAX_RETIRED: usize = 50;
/// Most bytes of sealed and deleted versions together, as the status holds them.
const MAX_BYTES: usize = 24 * 1024;
/// Most bytes of one version. So much is kept free for the one that is asked for.
const MAX_VERSION_BYTES: usize = 4 * 1024;

/// The room of a status that versions take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Room {
    versions: usize,
    bytes: usize,
}

impl Room {
    /// All there is.
    const WHOLE: Self = Self { versions: MAX_VERSIONS, bytes: MAX_BYTES };
    /// What one version can take.
    const ONE: Self = Self { versions: 1, bytes: MAX_VERSION_BYTES };
    /// Versions that nobody who may activate them has made get so much of it, so that they keep out no other.
    const UNMARKED: Self = Self { versions: MAX_VERSIONS / 2, bytes: MAX_BYTES / 2 };

    /// What these take.
    fn of<'a>(versions: impl IntoIterator<Item = &'a VersionStatus>) -> Self {
        let add = |room: Self, version| Self { versions: room.versions + 1, bytes: room.bytes + bytes(version) };
        versions.into_iter().fold(Self::default(), add)
    }

    fn and(self, other: Self) -> Self {
        Self { versions: self.versions + other.versions, bytes: self.bytes + other.bytes }
    }

    fn is_within(self, bound: Self) -> bool {
        self.versions <= bound.versions && self.bytes <= bound.bytes
    }
}

/// The room that is taken: by all versions, and by those that nobody who may activate them has made.
struct Taken {
    all: Room,
    unmarked: Room,
}

impl Taken {
    fn by(sealed: &[VersionStatus]) -> Self {
        Self { all: Room::of(sealed), unmarked: Room::of(sealed.iter().filter(|sealed| sealed.consent.is_some())) }
    }

    fn add(&mut self, sealed: &VersionStatus) {
        let own = Room::of([sealed]);
        self.all = self.all.and(own);
        if sealed.consent.is_some() {
            self.unmarked = self.unmarked.and(own);
        }
    }

    /// Why there is no room for one more version. For those that are asked for or in use, some is kept free.
    fn refuses(&self, sealed: &VersionStatus, wanted: bool) -> Option<String> {
        let (version, own) = (&sealed.version, Room::of([sealed]));
        if own.bytes > MAX_VERSION_BYTES {
            return Some(format!(
                "version {version} takes {} bytes of the status, and a version can have {MAX_VERSION_BYTES}; give it fewer objects, or \
                 shorter names",
                own.bytes
            ));
        }
        let kept_free = if wanted { Room::default() } else { Room::ONE };
        let Room { versions, bytes } = self.all;
        if !self.all.and(own).and(kept_free).is_within(Room::WHOLE) {
            return Some(format!(
                "there are {versions} versions with {bytes} bytes of the status, and a config holds {MAX_VERSIONS} with {MAX_BYTES} \
                 bytes, one of which is kept for the version that is asked for; delete some that are not needed"
            ));
        }
        if sealed.consent.is_some() && !self.unmarked.and(own).is_within(Room::UNMARKED) {
            return Some(format!(
                "there are {} versions with {} bytes of the status that nobody who may activate them has made, and a config holds {} with {} \
                 bytes; delete some that are not needed",
                self.unmarked.versions,
                self.unmarked.bytes,
                Room::UNMARKED.versions,
                Room::UNMARKED.bytes
            ));
        }
        None
    }
}

/// A version that is complete for the first time.
fn new_version(
    version: &str,
    parts: Vec<PartStatus>,
    (keys, bytes): (u32, u64),
    consent: Option<Consent>,
    now: &Time,
) -> VersionStatus {
    let (version, state, digest, seal_time) =
        (version.to_owned(), VersionState::Available, String::new(), Some(now.clone()));
    let mut sealed = VersionStatus { version, state, digest, parts, keys, bytes, seal_time, consent };
    sealed.digest = short_digest(&sealed);
    sealed
}

/// Bytes of a version in the status, whatever becomes of it.
fn bytes(version: &impl Serialize) -> usize {
    // And a comma; the state and the consent can become longer by this.
    serde_json::to_string(version).map_or(usize::MAX / 64, |text| text.len() + 40)
}

/// Whether no more than a tenth of what versions may take is left, or one more may find no room beside the one that is asked for.
pub fn is_nearly_full(status: &VersionedConfigStatus) -> bool {
    let taken = Room::of(&status.versions);
    10 * taken.versions >= 9 * MAX_VERSIONS || !taken.and(Room::ONE).and(Room::ONE).is_within(Room::WHOLE)
}

/// What there is to know about the versions of one config.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inventory {
    /// The sealed versions, oldest first.
    pub sealed: Vec<VersionStatus>,
    /// Versions that are not sealed, with how they stand.
    pub others: BTreeMap<String, SealCheck>,
    /// Digests of deleted versions.
    pub retired: Vec<RetiredVersion>,
    /// Names of versions that were sealed just now.
    pub new: Vec<String>,
    /// Messages about objects that do not belong where their labels say.
    pub conflicts: Vec<String>,
    /// Objects to read before more can be said.
    pub unread: Vec<(PartKind, String)>,
    /// Complete versions that must be judged before they are sealed, in the order in which they would be.
    pub unjudged: Vec<Unjudged>,
    /// Versions that break a rule of spec.validation, as the status keeps them.
    pub invalid: Vec<InvalidVersion>,
}

/// Surveys `parts`, the objects with the config's label. Nothing is concluded from the absence of an object of a kind that is `unseen`.
/// `named` is what `spec.version` names.
#[allow(clippy::too_many_arguments)] // all that is known of one config
pub fn inventory(
    status: &VersionedConfigStatus,
    parts: &[Arc<PartMeta>],
    facts: &Facts,
    unseen: &[PartKind],
    named: Option<&str>,
    judging: &Judging<'_>,
    seals: &Seals,
    now: &Time,
) -> Inventory {
    let mut by_version: BTreeMap<&str, Vec<Arc<PartMeta>>> = BTreeMap::new();
    for part in parts.iter().filter(|part| !part.terminating) {
        by_version.entry(&part.version).or_default().push(Arc::clone(part));
    }
    // Names of objects that are there, with the versions of their labels.
    let there = parts.iter().filter(|part| !part.terminating);
    let there: HashMap<(PartKind, &str), &str> =
        there.map(|part| ((part.kind, part.name.as_str()), part.version.as_str())).collect();
    let mut inventory = Inventory { retired: status.internal.retired.clone(), ..Inventory::default() };
    for sealed in &status.versions {
        let objects = by_version.remove(sealed.version.as_str()).unwrap_or_default();
        let is_taken = |own: &PartStatus| {
            there.get(&(own.kind, own.name.as_str())).is_some_and(|version| *version != sealed.version)
        };
        let taken = sealed.parts.iter().any(is_taken);
        inventory.review(sealed, &objects, facts, unseen, taken, seals);
    }
    // What has come first is sealed first; the name decides between those of one second.
    let mut fresh: Vec<(i64, &str, Vec<Arc<PartMeta>>)> = by_version
        .into_iter()
        .map(|(version, objects)| (objects.iter().map(|part| part.created).max().unwrap_or(0), version, objects))
        .collect();
    fresh.sort_by(|one, other| (one.0, one.1).cmp(&(other.0, other.1)));
    let mut names: HashMap<(PartKind, String), String> = HashMap::new();
    if !fresh.is_empty() {
        inventory.sealed.iter().for_each(|sealed| names.extend(owned(sealed)));
    }
    // All versions are encoded for it, so it is counted once, and only where it is needed.
    let mut room = None::<Taken>;
    for (_, version, objects) in fresh {
        let retired = inventory.retired.iter().find(|retired| retired.version == version);
        // What was sealed before has passed the rules of that time.
        let is_back = retired.is_some();
        let seal_check = foreign(&names, version, &objects).map(SealCheck::Invalid);
        let seal_check = seal_check.unwrap_or_else(|| stand(version, &objects, facts, retired, seals));
        let sealed = match seal_check {
            SealCheck::Complete { parts, keys, bytes, marked } => {
                // What is current and was deleted is the same again.
                let back = is_back && status.current_version.as_deref() == Some(version);
                let needed = if named == Some(version) { Consent::NeededAnew } else { Consent::Needed };
                let consent = (!marked && !back).then_some(needed);
                let sealed = new_version(version, parts, (keys, bytes), consent, now);
                let room = room.get_or_insert_with(|| Taken::by(&inventory.sealed));
                match room.refuses(&sealed, named == Some(version) || status.holds(version)) {
                    Some(message) => Err(SealCheck::Invalid(message)),
                    None => Ok(sealed),
                }
            }
            other => Err(other),
        };
        let judgement = match &sealed {
            Ok(sealed) if !is_back => judge(version, &sealed.parts, status, judging),
            _ => None,
        };
        let sealed = match judgement {
            Some(Judgement { held, invalid, unjudged }) => {
                inventory.invalid.extend(invalid);
                inventory.unjudged.extend(unjudged);
                Err(held)
            }
            None => sealed,
        };
        match sealed {
            Ok(sealed) => {
                inventory.retired.retain(|retired| retired.version != version);
                inventory.new.push(version.to_owned());
                names.extend(owned(&sealed));
                if let Some(room) = &mut room {
                    room.add(&sealed);
                }
                inventory.sealed.push(sealed);
            }
            Err(seal_check) => {
                if let SealCheck::Unread(objects) = &seal_check {
                    inventory.unread.extend(objects.clone());
                }
                inventory.others.insert(version.to_owned(), seal_check);
            }
        }
    }
    for sealed in inventory.sealed.iter_mut().filter(|sealed| named != Some(sealed.version.as_str())) {
        // From now on, naming it is consent.
        sealed.consent = sealed.consent.map(|_| Consent::Needed);
    }
    inventory.invalid = bounded(std::mem::take(&mut inventory.invalid), &status.invalid, named);
    if !inventory.new.is_empty() || inventory.retired.len() > status.internal.retired.len().min(MAX_RETIRED) {
        inventory.bound_retired();
    }
    inventory
}

/// The names of its objects, with its own.
fn owned(sealed: &VersionStatus) -> impl Iterator<Item = ((PartKind, String), String)> {
    sealed.parts.iter().map(|part| ((part.kind, part.name.clone()), sealed.version.clone()))
}

/// Why none of these can be sealed as this version: a name stays with its version, because nodes may hold the old bytes under it.
fn foreign(names: &HashMap<(PartKind, String), String>, version: &str, objects: &[Arc<PartMeta>]) -> Option<String> {
    objects.iter().find_map(|object| {
        let other = names.get(&(object.kind, object.name.clone()))?;
        let name = object_name(object.kind, &object.name);
        Some(format!(
            "{name} can't be part of version {version}, because an object of that name is part of version {other}; delete it and \
             create it under another name"
        ))
    })
}

impl Inventory {
    /// Forgets the oldest of the deleted versions.
    fn bound_retired(&mut self) {
        let (mut count, mut bytes) = (0, Room::of(&self.sealed).bytes);
        let kept = self.retired.iter().rev().take_while(|retired| {
            (count, bytes) = (count + 1, bytes + self::bytes(retired));
            count <= MAX_RETIRED && bytes <= MAX_BYTES
        });
        let surplus = self.retired.len() - kept.count();
        self.retired.drain(..surplus);
    }

    /// Looks at a sealed version again. `taken`: an object with a name of it has the labels of another version.
    fn review(
        &mut self,
        sealed: &VersionStatus,
        objects: &[Arc<PartMeta>],
        facts: &Facts,
        unseen: &[PartKind],
        taken: bool,
        seals: &Seals,
    ) {
        let mut sealed = sealed.clone();
        let version = sealed.version.clone();
        let mut own = BTreeSet::new();
        let (mut missing, mut wrong, count) = (0, false, sealed.parts.len());
        for (at, part) in sealed.parts.iter_mut().enumerate() {
            let Some(object) = objects.iter().find(|object| object.kind == part.kind && object.name == part.name)
            else {
                if !unseen.contains(&part.kind) {
                    missing += 1;
                }
                continue;
            };
            own.insert((object.kind, object.name.clone()));
            if object.uid == part.uid {
                continue;
            }
            // It was deleted and put back. With the same content it is the same version.
            let Some(facts) = facts_of(facts, object) else {
                self.unread.push((object.kind, object.name.clone()));
                continue;
            };
            let differs = if !facts.is_sealed(&part.digest, seals, &version, at + 1) {
                "with other content"
            } else if part_number(object).map(|part| (part.number(), part.count())) != Ok((at + 1, count)) {
                "as another part"
            } else if !facts.immutable {
                "without immutable: true"
            } else {
                part.uid.clone_from(&object.uid);
                continue;
            };
            wrong = true;
            let name = object_name(part.kind, &part.name);
            self.conflicts.push(format!(
                "{name} was put back into version {version} {differs} and is not used; delete it and create it as it was, part \
                 {} of {count}, or use another version name",
                at + 1
            ));
        }
        for object in objects.iter().filter(|object| !own.contains(&(object.kind, object.name.clone()))) {
            // A single-object version that is put back under another name is judged anew below, once the old one is retired.
            if missing < count {
                let name = object_name(object.kind, &object.name);
                self.conflicts.push(format!(
                    "{name} has the labels of version {version}, which was complete without it, and is not used; delete it, \
                     or create it for another version"
                ));
            }
        }
        // While one of its names is taken it is remembered: otherwise the one who took it would only have to wait.
        if missing == count && !taken {
            // Its name is the digest of its content, so it can return with the same content only.
            if is_of_source(&version) {
                return;
            }
            let digests = sealed.parts.iter().map(|part| part.digest.clone()).collect();
            self.retired.retain(|retired| retired.version != version);
            self.retired.push(RetiredVersion { version, digests });
            return;
        }
        if missing > 0 || wrong {
            sealed.state = VersionState::Broken;
        } else if sealed.state == VersionState::Broken {
            sealed.state = VersionState::Available;
        }
        self.sealed.push(sealed);
    }

    /// The sealed version of this name.
    pub fn find(&self, version: &str) -> Option<&VersionStatus> {
        self.sealed.iter().find(|sealed| sealed.version == version)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::seal::tests::seals;
    use super::super::seal_check::tests::{facts, part};
    use nudge_api::InternalStatus;

    use super::*;

    fn at() -> Time {
        Time(k8s_openapi::jiff::Timestamp::from_second(1).unwrap())
    }

    fn known(parts: &[(Arc<PartMeta>, &str)]) -> (Vec<Arc<PartMeta>>, Facts) {
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
            inventory(&VersionedConfigStatus::default(), &parts, &facts, &[], None, &Judging::NONE, &seals(), &at());
        assert_eq!(first.new, ["1"]);
        let gone = inventory(&after(&first), &[], &Facts::new(), &[], None, &Judging::NONE, &seals(), &at());
        assert!(gone.sealed.is_empty());
        assert_eq!(gone.retired[0].digests, ["sha256:x"]);

        let (same, facts) = known(&[(object("shop-1", "1", "u2"), "x")]);
        let back = inventory(&after(&gone), &same, &facts, &[], None, &Judging::NONE, &seals(), &at());
        assert_eq!((back.new.len(), back.retired.len(), back.sealed[0].parts[0].uid.as_str()), (1, 0, "u2"));

        let (other, facts) = known(&[(object("shop-1", "1", "u3"), "y")]);
        let refused = inventory(&after(&gone), &other, &facts, &[], None, &Judging::NONE, &seals(), &at());
        assert!(refused.sealed.is_empty() && matches!(refused.others["1"], SealCheck::Invalid(_)));
        assert_eq!(refused.retired.len(), 1, "the digest is still known");
    }

    #[test]
    fn a_part_put_back_between_two_looks_needs_the_same_content() {
        let (parts, facts) = known(&[(object("shop-1", "1", "u1"), "x")]);
        let first =
            inventory(&VersionedConfigStatus::default(), &parts, &facts, &[], None, &Judging::NONE, &seals(), &at());
        let (same, same_facts) = known(&[(object("shop-1", "1", "u2"), "x")]);
        assert_eq!(
            inventory(&after(&first), &same, &Facts::new(), &[], None, &Judging::NONE, &seals(), &at()).unread.len(),
            1
        );
        assert_eq!(
            inventory(&after(&first), &same, &same_facts, &[], None, &Judging::NONE, &seals(), &at()).sealed[0].parts
                [0]
            .uid,
            "u2"
        );
        let (other, other_facts) = known(&[(object("shop-1", "1", "u3"), "y")]);
        let broken = inventory(&after(&first), &other, &other_facts, &[], None, &Judging::NONE, &seals(), &at());
        assert_eq!((broken.sealed[0].state, broken.conflicts.len()), (VersionState::Broken, 1));
        let mended = inventory(&after(&broken), &same, &same_facts, &[], None, &Judging::NONE, &seals(), &at());
        assert_eq!((mended.sealed[0].state, mended.conflicts.len()), (VersionState::Available, 0));
    }

    #[test]
    fn a_part_put_back_is_the_same_part_and_immutable() {
        let (parts, facts) = known(&[(object("shop-1", "1", "u1"), "x")]);
        let first =
            inventory(&VersionedConfigStatus::default(), &parts, &facts, &[], None, &Judging::NONE, &seals(), &at());
        let (same, mut open) = known(&[(object("shop-1", "1", "u2"), "x")]);
        open.get_mut("u2").unwrap().immutable = false;
        let refused = inventory(&after(&first), &same, &open, &[], None, &Judging::NONE, &seals(), &at());
        assert!(refused.conflicts[0].contains("without immutable: true and is not used"), "{:?}", refused.conflicts);
        let numbered = Arc::new(PartMeta { parts: Some("2".to_owned()), ..(*object("shop-1", "1", "u2")).clone() });
        let (other, facts) = known(&[(numbered, "x")]);
        let refused = inventory(&after(&first), &other, &facts, &[], None, &Judging::NONE, &seals(), &at());
        assert!(refused.conflicts[0].contains("as another part and is not used"), "{:?}", refused.conflicts);
        assert_eq!(refused.sealed[0].parts[0].uid, "u1");
    }

    #[test]
    fn a_name_stays_with_its_version() {
        let (parts, facts) = known(&[(object("a", "1", "u1"), "x")]);
        let first =
            inventory(&VersionedConfigStatus::default(), &parts, &facts, &[], None, &Judging::NONE, &seals(), &at());
        let (taken, facts) = known(&[(object("a", "2", "u2"), "y")]);
        let mut status = after(&first);
        for _ in 0..3 {
            let found = inventory(&status, &taken, &facts, &[], None, &Judging::NONE, &seals(), &at());
            let SealCheck::Invalid(message) = &found.others["2"] else { panic!("{:?}", found.others) };
            assert_eq!(
                message,
                "ConfigMap a can't be part of version 2, because an object of that name is part of version 1; delete it and \
                 create it under another name"
            );
            assert_eq!((found.sealed[0].state, found.retired.len()), (VersionState::Broken, 0));
            status = after(&found);
        }
        let gone = inventory(&status, &[], &facts, &[], None, &Judging::NONE, &seals(), &at());
        assert_eq!(gone.retired.len(), 1);
        assert_eq!(inventory(&after(&gone), &taken, &facts, &[], None, &Judging::NONE, &seals(), &at()).new, ["2"]);
    }

    #[test]
    fn a_late_object_is_not_part_of_a_sealed_version() {
        let (mut parts, facts) = known(&[(object("shop-1", "1", "u1"), "x")]);
        let first =
            inventory(&VersionedConfigStatus::default(), &parts, &facts, &[], None, &Judging::NONE, &seals(), &at());
        parts.push(object("late", "1", "u2"));
        let later = inventory(&after(&first), &parts, &facts, &[], None, &Judging::NONE, &seals(), &at());
        assert_eq!(later.sealed, first.sealed);
        assert!(later.conflicts[0].starts_with("ConfigMap late has the labels of version 1"), "{:?}", later.conflicts);
    }

    #[test]
    fn secrets_that_cannot_be_seen_are_not_gone() {
        let secret = Arc::new(part(PartKind::Secret, "keys-1", "1"));
        let (parts, facts) = known(&[(secret, "x")]);
        let first =
            inventory(&VersionedConfigStatus::default(), &parts, &facts, &[], None, &Judging::NONE, &seals(), &at());
        assert_eq!(
            inventory(&after(&first), &[], &facts, &[PartKind::Secret], None, &Judging::NONE, &seals(), &at()).sealed,
            first.sealed
        );
        assert!(inventory(&after(&first), &[], &facts, &[], None, &Judging::NONE, &seals(), &at()).sealed.is_empty());
    }

    #[test]
    fn the_older_version_is_sealed_first_and_digests_are_bounded() {
        let young = Arc::new(PartMeta { created: 9, ..part(PartKind::ConfigMap, "a", "1") });
        let old = Arc::new(PartMeta { created: 3, ..part(PartKind::ConfigMap, "b", "2") });
        let (parts, facts) = known(&[(young, "x"), (old, "y")]);
        let found =
            inventory(&VersionedConfigStatus::default(), &parts, &facts, &[], None, &Judging::NONE, &seals(), &at());
        assert_eq!(found.new, ["2", "1"]);
        let retired = (0..MAX_RETIRED + 3).map(|n| RetiredVersion { version: n.to_string(), digests: Vec::new() });
        let internal = InternalStatus { retired: retired.collect(), ..InternalStatus::default() };
        let many = VersionedConfigStatus { internal, ..VersionedConfigStatus::default() };
        let bounded = inventory(&many, &[], &Facts::new(), &[], None, &Judging::NONE, &seals(), &at());
        assert_eq!((bounded.retired.len(), bounded.retired[0].version.as_str()), (MAX_RETIRED, "3"));
    }

    #[test]
    fn one_version_too_many_is_refused() {
        let sealed = |n: usize| {
            let (parts, facts) = known(&[(object("x", &n.to_string(), "u"), "x")]);
            inventory(&VersionedConfigStatus::default(), &parts, &facts, &[], None, &Judging::NONE, &seals(), &at())
                .sealed
                .remove(0)
        };
        let parts: Vec<_> = (0..MAX_VERSIONS).map(|n| (object("x", &n.to_string(), "u"), "x")).collect();
        let full = VersionedConfigStatus { versions: (0..MAX_VERSIONS).map(sealed).collect(), ..Default::default() };
        let mut all = parts;
        all.push((object("more", "more", "um"), "y"));
        let (parts, facts) = known(&all);
        let found = inventory(&full, &parts, &facts, &[], None, &Judging::NONE, &seals(), &at());
        assert!(matches!(&found.others["more"], SealCheck::Invalid(message) if message.contains("delete some")));
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
                let found = inventory(&status, &parts, &facts, &[], None, &Judging::NONE, &seals(), &at());
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
}
