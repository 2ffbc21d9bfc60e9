//! The room for a config's versions in its status: the room they take, the versions that fit, and those that give way.

use nudge_api::{Consent, RetiredVersion, VersionState, VersionStatus, VersionedConfigStatus};
use nudge_protocol::plural::counted;
use serde::Serialize;

use super::digest_names::digest_prefix;

/// The maximum number of sealed versions of one config.
pub const MAX_VERSIONS: usize = 50;
/// The maximum number of sealed versions of one config that are neither requested nor in use.
#[cfg(test)]
pub(super) const MAX_FREE_VERSIONS: usize = MAX_VERSIONS - Room::KEPT.versions;
/// The maximum number of deleted versions that are remembered; the oldest are forgotten first.
pub const MAX_RETIRED_VERSIONS: usize = 50;
/// The maximum size in bytes of sealed and deleted versions together, as the status holds them.
pub(super) const MAX_BYTES: usize = 24 * 1024;
/// The maximum size in bytes of one version. The requested, current, previous, target and published versions always
/// fit: 6 versions.
pub(super) const MAX_VERSION_BYTES: usize = 4 * 1024;

/// A number of versions, and their bytes in the status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Room {
    versions: usize,
    bytes: usize,
}

impl Room {
    /// The room of all versions together.
    const WHOLE: Self = Self { versions: MAX_VERSIONS, bytes: MAX_BYTES };
    /// The room that is kept free for versions that are requested or in use: the places of the requested, current,
    /// previous, target and published version, and the bytes of the next one.
    const KEPT: Self = Self { versions: 5, bytes: MAX_VERSION_BYTES };
    /// The room of versions whose makers may not activate them. It is limited, so that they do not keep out other
    /// versions.
    const UNMARKED: Self = Self { versions: MAX_VERSIONS / 2, bytes: MAX_BYTES / 2 };

    fn and(self, other: Self) -> Self {
        Self { versions: self.versions + other.versions, bytes: self.bytes + other.bytes }
    }

    fn is_within(self, bound: Self) -> bool {
        self.versions <= bound.versions && self.bytes <= bound.bytes
    }
}

/// Returns the size in bytes of a version in the status, with a comma.
fn status_bytes(version: &impl Serialize) -> usize {
    // What can't be written counts as too large; the sum of all does not overflow.
    serde_json::to_string(version).map_or(usize::MAX / 64, |text| text.len() + 1)
}

/// Returns the maximum size in bytes of a sealed version in the status.
fn sealed_bytes(sealed: &VersionStatus) -> usize {
    status_bytes(&VersionStatus {
        state: VersionState::Available,
        consent: Some(Consent::NeededAnew),
        ..sealed.clone()
    })
}

/// Returns whether another version may not fit into the status in addition to the room that is kept free.
pub fn is_nearly_full(status: &VersionedConfigStatus) -> bool {
    let taken = Room { versions: status.versions.len(), bytes: status.versions.iter().map(sealed_bytes).sum() };
    let next = Room { versions: 1, bytes: MAX_VERSION_BYTES };
    !taken.and(next).and(Room::KEPT).is_within(Room::WHOLE)
}

/// Returns the record that the status keeps of a version that was sealed. Returns `None` for a version whose name is
/// the digest of its content.
pub(super) fn retired_record(sealed: &VersionStatus) -> Option<RetiredVersion> {
    let version = sealed.version.clone();
    let digests = sealed.parts.iter().map(|part| part.digest.clone()).collect();
    digest_prefix(&version).is_none().then_some(RetiredVersion { version, digests })
}

/// A version that takes room in the status.
#[derive(Clone, Debug)]
pub(super) struct Occupant {
    pub(super) version: String,
    bytes: usize,
    /// The size in bytes of the version's record once it is not sealed any more.
    record: usize,
    /// Whether the version was not made by a user who may activate it.
    unmarked: bool,
    /// Whether the version is requested or in use.
    needed: bool,
}

impl Occupant {
    pub(super) fn new(sealed: &VersionStatus, needed: bool) -> Self {
        Self {
            version: sealed.version.clone(),
            bytes: sealed_bytes(sealed),
            record: retired_record(sealed).as_ref().map_or(0, status_bytes),
            unmarked: sealed.consent.is_some(),
            needed,
        }
    }
}

/// The sealed versions of a config that take room in its status, the oldest first.
pub(super) struct Occupancy {
    occupants: Vec<Occupant>,
}

impl Occupancy {
    pub(super) fn of(sealed: &[VersionStatus], is_needed: impl Fn(&str) -> bool) -> Self {
        let occupants = sealed.iter().map(|sealed| Occupant::new(sealed, is_needed(&sealed.version)));
        Self { occupants: occupants.collect() }
    }

    pub(super) fn add(&mut self, occupant: Occupant) {
        self.occupants.push(occupant);
    }

    /// Notes that the version is requested.
    pub(super) fn need(&mut self, version: &str) {
        for occupant in self.occupants.iter_mut().filter(|occupant| occupant.version == version) {
            occupant.needed = true;
        }
    }

    /// Returns the room that all versions take, and the room that the unmarked ones take.
    fn taken(&self) -> (Room, Room) {
        let add = |(all, unmarked): (Room, Room), occupant: &Occupant| {
            let place = Room { versions: 1, bytes: occupant.bytes };
            (all.and(place), if occupant.unmarked { unmarked.and(place) } else { unmarked })
        };
        self.occupants.iter().fold(Default::default(), add)
    }

    /// Returns the index of the first version to give way: an unmarked one, or else any, unless `only_unmarked`.
    fn first_to_go(&self, only_unmarked: bool) -> Option<usize> {
        let first =
            |unmarked| self.occupants.iter().position(|occupant| !occupant.needed && occupant.unmarked == unmarked);
        first(true).or_else(|| first(false).filter(|_| !only_unmarked))
    }

    /// Removes versions until the others and the records of the removed ones fit. Returns the removed versions. Each of
    /// them would be refused if it were sealed again.
    pub(super) fn displace(&mut self) -> Vec<Occupant> {
        let (mut displaced, before) = (Vec::<Occupant>::new(), self.occupants.clone());
        loop {
            let (all, unmarked) = self.taken();
            let records = Room { versions: 0, bytes: displaced.iter().map(|occupant| occupant.record).sum() };
            let is_full = !all.and(records).is_within(Room::WHOLE);
            let index = if is_full || !unmarked.is_within(Room::UNMARKED) { self.first_to_go(!is_full) } else { None };
            let Some(index) = index else { break };
            displaced.push(self.occupants.remove(index));
        }
        displaced.retain(|occupant| {
            let is_refused = self.refusal(occupant).is_some();
            if !is_refused {
                self.occupants.push(occupant.clone());
            }
            is_refused
        });
        // Versions that stay keep their order.
        let place = |version: &str| before.iter().position(|occupant| occupant.version == version);
        self.occupants.sort_by_key(|occupant| place(&occupant.version));
        displaced
    }

    /// Returns why the version can't be sealed in addition to the versions here. A needed version always fits, since
    /// other versions give way.
    pub(super) fn refusal(&self, new: &Occupant) -> Option<String> {
        let Occupant { version, bytes, .. } = new;
        if *bytes > MAX_VERSION_BYTES {
            return Some(format!(
                "version {version} takes {bytes} bytes of the status, and a version can have at most {MAX_VERSION_BYTES}; give it fewer objects, \
                 or shorter names"
            ));
        }
        if new.needed {
            return None;
        }
        let (all, unmarked) = self.taken();
        let place = Room { versions: 1, bytes: *bytes };
        let (count, rule, only_unmarked) = if !all.and(place).and(Room::KEPT).is_within(Room::WHOLE) {
            let rule = format!(
                "of the status, and a config holds at most {MAX_VERSIONS} with {MAX_BYTES} bytes; {} places are kept for versions that \
                 are requested or in use",
                Room::KEPT.versions
            );
            (all, rule, false)
        } else if new.unmarked && !unmarked.and(place).is_within(Room::UNMARKED) {
            let Room { versions, bytes } = Room::UNMARKED;
            let rule = format!(
                "of the status that users without the right to activate them have made, and a config holds at most {versions} of these with {bytes} bytes"
            );
            (unmarked, rule, true)
        } else {
            return None;
        };
        let example = self.first_to_go(only_unmarked).and_then(|index| self.occupants.get(index));
        let example = example.map(|oldest| format!(", such as {}", oldest.version)).unwrap_or_default();
        Some(format!(
            "version {version} has no room: the config has {} with {} bytes {rule}; delete some that are not needed{example}",
            counted(count.versions, "version"),
            count.bytes
        ))
    }

    /// Forgets the oldest of the deleted versions if all versions together take too much room.
    pub(super) fn bound_retired(&self, retired: &mut Vec<RetiredVersion>) {
        let (mut count, mut sum) = (0, self.taken().0.bytes);
        let kept = retired.iter().rev().take_while(|retired| {
            (count, sum) = (count + 1, sum + status_bytes(retired));
            count <= MAX_RETIRED_VERSIONS && sum <= MAX_BYTES
        });
        let surplus = retired.len() - kept.count();
        retired.drain(..surplus);
    }
}
