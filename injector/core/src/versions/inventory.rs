//! The inventory of a config's versions. Complete versions are sealed, sealed ones stay while there is room, and
//! deleted ones are retired. Objects that do not belong to a version are named.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{
    Consent, InvalidVersion, PartKind, PartStatus, RetiredVersion, VersionState, VersionStatus, VersionedConfigStatus,
};

use super::part_facts::object_name;
use super::rule_verdicts::{Judging, SealRefusal, Unjudged, bounded, seal_refusal};
use super::seal::Seals;
use super::seal_check::{FactsByUid, SealCheck, facts_of, part_number, seal_check};
use super::version_room::{Occupancy, Occupant, retired_record};
use super::wanted_version::wanted_version;
use crate::governance::short_digest;
use crate::keys::PartMeta;

/// Returns a version that is complete for the first time.
fn new_version(
    version: &str,
    parts: Vec<PartStatus>,
    keys: u32,
    bytes: u64,
    consent: Option<Consent>,
    now: &Time,
) -> VersionStatus {
    let (version, state, digest, seal_time) =
        (version.to_owned(), VersionState::Available, String::new(), Some(now.clone()));
    let mut sealed = VersionStatus { version, state, digest, parts, keys, bytes, seal_time, consent };
    sealed.digest = short_digest(&sealed);
    sealed
}

/// The versions of one config, in all states.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inventory {
    /// The sealed versions, oldest first.
    pub sealed: Vec<VersionStatus>,
    /// The versions that are not sealed, with their seal checks.
    pub others: BTreeMap<String, SealCheck>,
    /// The digests of versions that were deleted or gave way.
    pub retired: Vec<RetiredVersion>,
    /// The names of versions that were sealed just now.
    pub new: Vec<String>,
    /// The messages about objects that do not belong to the versions in their labels.
    pub conflicts: Vec<String>,
    /// The objects that must be read before more can be said.
    pub unread: Vec<(PartKind, String)>,
    /// The complete versions that must be judged before they are sealed, in the order of sealing.
    pub unjudged: Vec<Unjudged>,
    /// The versions that break a rule of spec.validation, as the status keeps them.
    pub invalid: Vec<InvalidVersion>,
}

/// Takes the inventory of `parts`, the objects with the config's label. The absence of an object proves nothing if its
/// kind is `unseen`. `named` is the version in `spec.version`.
#[allow(clippy::too_many_arguments)] // all that is known of one config
pub fn take_inventory(
    status: &VersionedConfigStatus,
    parts: &[Arc<PartMeta>],
    facts: &FactsByUid,
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
    let present = parts.iter().filter(|part| !part.terminating);
    let version_by_object: HashMap<(PartKind, &str), &str> =
        present.map(|part| ((part.kind, part.name.as_str()), part.version.as_str())).collect();
    let mut inventory = Inventory { retired: status.internal.retired.clone(), ..Inventory::default() };
    for sealed in &status.versions {
        let objects = by_version.remove(sealed.version.as_str()).unwrap_or_default();
        let is_taken = |own: &PartStatus| {
            version_by_object.get(&(own.kind, own.name.as_str())).is_some_and(|version| *version != sealed.version)
        };
        let taken = sealed.parts.iter().any(is_taken);
        inventory.review(sealed, &objects, facts, unseen, taken, seals);
    }
    // The versions that came first are sealed first; the name decides between versions of the same second.
    let mut candidates: Vec<SealCandidate<'_>> =
        by_version.into_iter().map(|(version, objects)| SealCandidate { version, objects }).collect();
    candidates.sort_by(|a, b| (a.created(), a.version).cmp(&(b.created(), b.version)));
    let current = status.current_version.as_deref();
    let requested_version = wanted_version(named, current, &inventory.sealed).map(str::to_owned);
    let is_needed = |version: &str| requested_version.as_deref() == Some(version) || status.is_in_use(version);
    let mut occupancy = Occupancy::of(&inventory.sealed, is_needed);
    let (needed, others): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|candidate| is_needed(candidate.version));
    let sealing = Sealing { status, facts, named, judging, seals, now };
    let mut no_room = sealing.seal_all(&needed, true, &mut inventory, &mut occupancy);
    let displaced = occupancy.displace();
    inventory.give_way(&displaced);
    no_room.extend(displaced);
    no_room.extend(sealing.seal_all(&others, false, &mut inventory, &mut occupancy));
    // The requested version follows from the versions that are sealed in the end, so that the next pass has the same
    // result.
    if let Some(version) = wanted_version(named, current, &inventory.sealed) {
        occupancy.need(version);
    }
    for occupant in no_room {
        let refusal = occupancy.refusal(&occupant);
        inventory.others.extend(refusal.map(|message| (occupant.version, SealCheck::Invalid(message))));
    }
    for sealed in inventory.sealed.iter_mut().filter(|sealed| named != Some(sealed.version.as_str())) {
        // From now on, naming it is consent.
        sealed.consent = sealed.consent.map(|_| Consent::Needed);
    }
    inventory.invalid = bounded(std::mem::take(&mut inventory.invalid), &status.invalid, named);
    occupancy.bound_retired(&mut inventory.retired);
    inventory
}

/// A version that is not sealed, with the objects that have its labels.
struct SealCandidate<'a> {
    version: &'a str,
    objects: Vec<Arc<PartMeta>>,
}

impl SealCandidate<'_> {
    fn created(&self) -> i64 {
        self.objects.iter().map(|part| part.created).max().unwrap_or_default()
    }
}

/// The conditions under which candidates are sealed in one pass.
struct Sealing<'a> {
    status: &'a VersionedConfigStatus,
    facts: &'a FactsByUid,
    named: Option<&'a str>,
    judging: &'a Judging<'a>,
    seals: &'a Seals,
    now: &'a Time,
}

impl Sealing<'_> {
    /// Seals the candidates that are complete and valid. Returns the ones that find no room.
    fn seal_all(
        &self,
        candidates: &[SealCandidate<'_>],
        needed: bool,
        inventory: &mut Inventory,
        occupancy: &mut Occupancy,
    ) -> Vec<Occupant> {
        let mut no_room = Vec::new();
        if candidates.is_empty() {
            return no_room;
        }
        let names = inventory.names();
        for candidate in candidates {
            let sealed = match self.sealed(candidate, inventory, &names) {
                Ok(sealed) => sealed,
                Err(seal_check) => {
                    inventory.leave(candidate.version, seal_check);
                    continue;
                }
            };
            let occupant = Occupant::new(&sealed, needed);
            if occupancy.refusal(&occupant).is_some() {
                no_room.push(occupant);
            } else if self.passes(&sealed, inventory) {
                inventory.add(sealed);
                occupancy.add(occupant);
            }
        }
        no_room
    }

    /// Returns the version as it would be sealed, or the reason why it can't be.
    fn sealed(
        &self,
        candidate: &SealCandidate<'_>,
        inventory: &Inventory,
        names: &ObjectNames,
    ) -> Result<VersionStatus, SealCheck> {
        let SealCandidate { version, objects } = candidate;
        if let Some(message) = find_foreign_object(names, version, objects) {
            return Err(SealCheck::Invalid(message));
        }
        let retired = inventory.retired(version);
        match seal_check(version, objects, self.facts, retired, self.seals) {
            SealCheck::Complete { parts, keys, bytes, marked } => {
                // The current version was deleted, and this one is the same again.
                let is_again = retired.is_some() && self.status.current_version.as_deref() == Some(version);
                let consent = (!marked && !is_again).then(|| self.consent(version, retired));
                Ok(new_version(version, parts, keys, bytes, consent, self.now))
            }
            other => Err(other),
        }
    }

    /// Returns the consent that a version needs if its creator may not make it current. Naming such a version is
    /// consent if its content was known before.
    fn consent(&self, version: &str, retired: Option<&RetiredVersion>) -> Consent {
        let was_named = self.status.desired_version.as_deref() == Some(version);
        if self.named == Some(version) && (was_named || retired.is_none()) {
            Consent::NeededAnew
        } else {
            Consent::Needed
        }
    }

    /// Returns whether the version follows the rules of `spec.validation`. A version that was sealed before has passed
    /// the rules of that time.
    fn passes(&self, sealed: &VersionStatus, inventory: &mut Inventory) -> bool {
        let version = sealed.version.as_str();
        if inventory.retired(version).is_some() {
            return true;
        }
        let judgement = seal_refusal(version, &sealed.parts, self.status, self.judging);
        let Some(SealRefusal { check, invalid, unjudged }) = judgement else { return true };
        inventory.invalid.extend(invalid);
        inventory.unjudged.extend(unjudged);
        inventory.leave(version, check);
        false
    }
}

/// The versions that objects are part of, by kind and name of the object.
type ObjectNames = HashMap<(PartKind, String), String>;

/// Returns why none of these objects can be sealed as this version: a name stays with its version, because nodes may
/// hold the old bytes under it.
fn find_foreign_object(names: &ObjectNames, version: &str, objects: &[Arc<PartMeta>]) -> Option<String> {
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
    /// Returns the deleted version of this name.
    fn retired(&self, version: &str) -> Option<&RetiredVersion> {
        self.retired.iter().find(|retired| retired.version == version)
    }

    /// Returns the names of the objects of sealed versions.
    fn names(&self) -> ObjectNames {
        let names = self.sealed.iter().flat_map(|sealed| {
            sealed.parts.iter().map(|part| ((part.kind, part.name.clone()), sealed.version.clone()))
        });
        names.collect()
    }

    /// Adds a version that is sealed from now on.
    fn add(&mut self, sealed: VersionStatus) {
        self.retired.retain(|retired| retired.version != sealed.version);
        self.new.push(sealed.version.clone());
        self.sealed.push(sealed);
    }

    /// Notes why a version is not sealed.
    fn leave(&mut self, version: &str, seal_check: SealCheck) {
        if let SealCheck::Unread(objects) = &seal_check {
            self.unread.extend(objects.clone());
        }
        self.others.insert(version.to_owned(), seal_check);
    }

    /// Removes these versions from the sealed versions. They are remembered like deleted versions.
    fn give_way(&mut self, displaced: &[Occupant]) {
        for occupant in displaced {
            let place = self.sealed.iter().position(|sealed| sealed.version == occupant.version);
            if let Some(place) = place {
                let sealed = self.sealed.remove(place);
                self.retire(&sealed);
            }
        }
    }

    /// Remembers the digests of a version that is not sealed any more.
    fn retire(&mut self, sealed: &VersionStatus) {
        self.retired.retain(|retired| retired.version != sealed.version);
        self.retired.extend(retired_record(sealed));
    }

    /// Checks a sealed version again. `taken` is whether an object with the name of one of its parts has the labels of
    /// another version.
    fn review(
        &mut self,
        sealed: &VersionStatus,
        objects: &[Arc<PartMeta>],
        facts: &FactsByUid,
        unseen: &[PartKind],
        taken: bool,
        seals: &Seals,
    ) {
        let mut sealed = sealed.clone();
        let version = sealed.version.clone();
        let mut own = BTreeSet::new();
        let (mut missing, mut wrong, count) = (0, false, sealed.parts.len());
        for (index, part) in sealed.parts.iter_mut().enumerate() {
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
            // The object was deleted and put back. With the same content it is the same version.
            let Some(facts) = facts_of(facts, object) else {
                self.unread.push((object.kind, object.name.clone()));
                continue;
            };
            let differs = if !facts.is_sealed(&part.digest, seals, &version, index + 1) {
                "with other content"
            } else if part_number(object).map(|part| (part.number(), part.count())) != Ok((index + 1, count)) {
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
                index + 1
            ));
        }
        for object in objects.iter().filter(|object| !own.contains(&(object.kind, object.name.clone()))) {
            // A single-object version that is put back under another name is judged again below, once the old one is
            // retired.
            if missing < count {
                let name = object_name(object.kind, &object.name);
                self.conflicts.push(format!(
                    "{name} has the labels of version {version}, which was complete without it, and is not used; delete it, \
                     or create it for another version"
                ));
            }
        }
        // While one of its names is taken the version is remembered: otherwise the user who took it would only have to
        // wait.
        if missing == count && !taken {
            self.retire(&sealed);
            return;
        }
        if missing > 0 || wrong {
            sealed.state = VersionState::Broken;
        } else if sealed.state == VersionState::Broken {
            sealed.state = VersionState::Available;
        }
        self.sealed.push(sealed);
    }

    /// Returns the sealed version of this name.
    pub fn find(&self, version: &str) -> Option<&VersionStatus> {
        self.sealed.iter().find(|sealed| sealed.version == version)
    }
}
