//! Compares the Secret parts that a pod has mounted with what was sealed. Does no I/O.
//!
//! The agent sends a digest of each part, and learns whether its seal is that of the part. So neither a key nor anything
//! about another part leaves the hub.

use nudge_api::{PartKind, PartStatus, VersionStatus};
use nudge_core::pods::PodState;
use nudge_core::versions::Seals;
use nudge_protocol::SecretDigest;
use nudge_protocol::hub::MountedSecrets;

/// Compares the digests of the Secret parts of a version, in the order of the parts, with their seals. `None` if the
/// number of parts is another one, or the specification of the pod does not name all of their objects: nobody learns
/// anything about a Secret that the pod does not have.
pub(super) fn compare(
    version: &VersionStatus,
    digests: &[SecretDigest],
    pod: &PodState,
    seals: &Seals,
) -> Option<MountedSecrets> {
    let secrets = (1..).zip(&version.parts).filter(|(_, part)| part.kind == PartKind::Secret);
    let secrets: Vec<(usize, &PartStatus)> = secrets.collect();
    let is_named = |part: &PartStatus| pod.references.contains(&(part.kind, part.name.clone()));
    if secrets.len() != digests.len() || !secrets.iter().all(|(_, part)| is_named(part)) {
        return None;
    }
    let is_changed = |((number, part), digest): &((usize, &PartStatus), &SecretDigest)| {
        !seals.is_secret_sealed(&part.digest, &version.version, *number, digest)
    };
    let changed_part = secrets.into_iter().zip(digests).find(is_changed);
    Some(changed_part.map_or(MountedSecrets::Sealed, |((part, _), _)| MountedSecrets::Changed { part }))
}
