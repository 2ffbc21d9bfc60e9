//! Makes the content of a version for pods: checks its parts against the seals, merges them, and encodes them once.
//! Does no I/O.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use nudge_api::{PartKind, PartStatus};
use nudge_core::versions::Seals;
use nudge_protocol::block::{self, BlockError, Stored};
use nudge_protocol::bounded_text::clip;
use nudge_protocol::hub::{HubProblem, HubReason};
use nudge_protocol::{BlockDigest, Key};
use ring::digest::{SHA256, digest};
use zeroize::Zeroizing;

use super::parts::Part;

/// The content of a version, as all its pods get it.
pub(crate) struct Content {
    /// The encoded keys and values, which are wiped when the last reply with them is sent.
    pub(crate) block: Bytes,
    /// The lower-case hex SHA-256 of the block.
    pub(crate) sha256: Option<BlockDigest>,
    /// The Secrets that the content was made of, as `Secret/name`. Every delivery of them is audited.
    pub(crate) secrets: Vec<String>,
}

impl fmt::Debug for Content {
    /// Writes the content without its values.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Content").field("sha256", &self.sha256).finish_non_exhaustive()
    }
}

/// Makes the content of `version` from the `stored` objects, which have the order of the sealed `parts`.
pub(super) fn assemble(
    version: &str,
    parts: &[PartStatus],
    stored: Vec<Part>,
    seals: &Seals,
) -> Result<Content, HubProblem> {
    let mut values: BTreeMap<Key, Stored<Zeroizing<Vec<u8>>>> = BTreeMap::new();
    for ((sealed, part), number) in parts.iter().zip(stored).zip(1..) {
        if part.uid != sealed.uid || !seals.is_sealed(&sealed.digest, version, number, &part.contents) {
            return Err(changed_problem(version, sealed, "is not what was sealed"));
        }
        let kind = sealed.kind.into();
        for (name, value) in part.contents {
            let name =
                Key::new(&name).map_err(|error| problem(HubReason::Changed, format!("version {version}: {error}")))?;
            if values.insert(name, Stored { kind, value }).is_some() {
                return Err(changed_problem(version, sealed, "has a key that another part has too"));
            }
        }
    }
    let mut bytes = Zeroizing::new(Vec::new());
    block::encode(&values, &mut bytes).map_err(|error| match error {
        BlockError::TooLarge { .. } | BlockError::ValueTooLarge { .. } => {
            problem(HubReason::TooLarge, format!("version {version}: {error}; divide it among several configs"))
        }
        _ => problem(HubReason::Changed, format!("version {version}: {error}")),
    })?;
    let secrets = parts.iter().filter(|part| part.kind == PartKind::Secret);
    Ok(Content {
        sha256: Some(BlockDigest::of_hash(digest(&SHA256, &bytes).as_ref())),
        block: Bytes::from_owner(bytes),
        secrets: secrets.map(|part| format!("{}/{}", part.kind, part.name)).collect(),
    })
}

/// Returns the problem of a stored object that is not as it was sealed.
pub(super) fn changed_problem(version: &str, part: &PartStatus, what: &str) -> HubProblem {
    let PartStatus { kind, name, .. } = part;
    let remedy = "create the version again with the content it had, or make another version current";
    problem(HubReason::Changed, format!("version {version}: {kind} {name} {what}; {remedy}"))
}

/// Returns a problem whose message is short enough for every head.
pub(super) fn problem(reason: HubReason, message: impl Into<String>) -> HubProblem {
    const MAX_MESSAGE_BYTES: usize = 1024;
    HubProblem { reason, message: clip(message.into(), MAX_MESSAGE_BYTES) }
}

#[cfg(test)]
#[path = "content_tests.rs"]
mod tests;
