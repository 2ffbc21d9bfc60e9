//! Compares the Secret parts that a pod has mounted with what was sealed. Does no I/O.
//!
//! The agent sends a digest of each part, and learns whether its seal is that of the part. So neither a key nor
//! anything about another part leaves the hub.

use nudge_api::{PartKind, PartStatus, VersionedConfigStatus};
use nudge_core::pods::PodState;
use nudge_core::versions::{SEAL, Seals};
use nudge_protocol::SecretDigest;
use nudge_protocol::hub::MountedSecrets;

/// The seal of a Secret part, and the number of the part.
type PartSeal<'a> = (usize, &'a str);

/// Returns the seals of the Secret parts of a version. `None` if the specification of the pod does not name all of
/// their objects: nobody learns anything about a Secret that the pod does not have. If objects of the current version
/// were deleted, the status has their seals without names. Each pod that the config admits may have that version.
pub(super) fn seals_of<'a>(
    status: &'a VersionedConfigStatus,
    version: &str,
    pod: &PodState,
) -> Option<Vec<PartSeal<'a>>> {
    if let Some(sealed) = status.version(version) {
        let secrets = (1..).zip(&sealed.parts).filter(|(_, part)| part.kind == PartKind::Secret);
        let is_named = |part: &PartStatus| pod.references.contains(&(part.kind, part.name.clone()));
        return secrets.map(|(number, part)| is_named(part).then_some((number, part.digest.as_str()))).collect();
    }
    let mut retired = status.internal.retired.iter().filter(|_| status.current_version.as_deref() == Some(version));
    let digests = &retired.find(|retired| retired.version == version)?.digests;
    let digests = (1..).zip(digests.iter().map(String::as_str));
    Some(digests.filter(|(_, digest)| digest.starts_with(SEAL)).collect())
}

/// Compares the digests of the Secret parts of a version, in the order of the parts, with their seals. `None` if the
/// number of parts is another one.
pub(super) fn compare(
    version: &str,
    part_seals: &[PartSeal<'_>],
    digests: &[SecretDigest],
    seals: &Seals,
) -> Option<MountedSecrets> {
    if part_seals.len() != digests.len() {
        return None;
    }
    let is_changed = |((number, seal), digest): &(&PartSeal<'_>, &SecretDigest)| {
        !seals.is_secret_sealed(seal, version, *number, digest)
    };
    let changed_part = part_seals.iter().zip(digests).find(is_changed);
    Some(changed_part.map_or(MountedSecrets::Sealed, |((part, _), _)| MountedSecrets::Changed { part: *part }))
}
