//! A version's content as pods get it: its parts checked against what was sealed, merged, and encoded once. Pure.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use nudge_api::{PartKind, PartStatus};
use nudge_core::versions::Seals;
use nudge_protocol::Key;
use nudge_protocol::block::{self, BlockError};
use nudge_protocol::bounded_text::clipped;
use nudge_protocol::hex::hex;
use nudge_protocol::hub::{HubProblem, HubReason};
use ring::digest::{SHA256, digest};
use zeroize::Zeroizing;

use super::source::Part;

/// One version as all its pods get it.
pub(super) struct Content {
    /// The encoded keys and values; wiped when the last of those who send it is done.
    pub(super) block: Bytes,
    /// Lower-case hex SHA-256 of the block.
    pub(super) sha256: String,
    /// The Secrets it was made of, as `Secret/name`; every delivery of them is audited.
    pub(super) secrets: Vec<String>,
}

impl fmt::Debug for Content {
    /// Without the values.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Content").field("sha256", &self.sha256).finish_non_exhaustive()
    }
}

/// Makes the content of `version` out of the `stored` objects, which stand in the order of the sealed `parts`.
pub(super) fn assemble(
    version: &str,
    parts: &[PartStatus],
    stored: Vec<Part>,
    seals: &Seals,
) -> Result<Content, HubProblem> {
    let mut values: BTreeMap<Key, Zeroizing<Vec<u8>>> = BTreeMap::new();
    for ((sealed, part), number) in parts.iter().zip(stored).zip(1..) {
        if part.uid != sealed.uid || !seals.is_sealed(&sealed.digest, version, number, &part.contents) {
            return Err(changed(version, sealed, "is not what was sealed"));
        }
        for (name, value) in part.contents {
            let name =
                Key::new(&name).map_err(|error| problem(HubReason::Changed, format!("version {version}: {error}")))?;
            if values.insert(name, value).is_some() {
                return Err(changed(version, sealed, "has a key that another part has too"));
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
        sha256: hex(digest(&SHA256, &bytes).as_ref()),
        block: Bytes::from_owner(bytes),
        secrets: secrets.map(|part| format!("{}/{}", part.kind, part.name)).collect(),
    })
}

/// The stored objects are not what was sealed.
pub(super) fn changed(version: &str, part: &PartStatus, what: &str) -> HubProblem {
    let PartStatus { kind, name, .. } = part;
    let way_out = "create the version again with the content it had, or make another version current";
    problem(HubReason::Changed, format!("version {version}: {kind} {name} {what}; {way_out}"))
}

/// A problem whose message is short enough for every head.
pub(super) fn problem(reason: HubReason, message: impl Into<String>) -> HubProblem {
    const MAX_MESSAGE_BYTES: usize = 1024;
    HubProblem { reason, message: clipped(message.into(), MAX_MESSAGE_BYTES) }
}

#[cfg(test)]
pub(super) mod tests {
    use nudge_core::identity::Identity;
    use nudge_core::keys::ConfigKey;
    use nudge_core::versions::{Contents, contents_of, part_digest};
    use nudge_protocol::limits::MAX_VALUE_BYTES;
    use ring::hmac;

    use super::*;

    /// Of the config `shop`.
    const UID: &str = "uid-shop";

    pub(crate) fn hmac_key() -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &[7; 32])
    }

    fn contents(pairs: &[(&str, Vec<u8>)]) -> Contents {
        let bytes = |bytes: &Vec<u8>| k8s_openapi::ByteString(bytes.clone());
        contents_of(None, Some(pairs.iter().map(|(key, value)| ((*key).to_owned(), bytes(value))).collect()))
    }

    fn seals(identity: &str) -> Seals {
        Seals::new(&hmac_key(), &ConfigKey::parse("ns", "shop").unwrap(), Identity::of_uid(identity))
    }

    /// Part `number` of version 1 of the config `shop`, and the object that it was sealed from.
    pub(crate) fn part(kind: PartKind, name: &str, number: usize, pairs: &[(&str, Vec<u8>)]) -> (PartStatus, Part) {
        let contents = contents(pairs);
        let digest = match kind {
            PartKind::ConfigMap => part_digest(&contents, None),
            PartKind::Secret => seals(UID).seal("1", number, &part_digest(&contents, Some(&hmac_key()))),
        };
        let status = PartStatus { kind, name: name.to_owned(), uid: format!("uid-{name}"), digest };
        (status.clone(), Part { uid: status.uid, contents })
    }

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
        let values: Vec<(&str, &[u8])> = values.iter().map(|(key, value)| (key.as_str(), *value)).collect();
        assert_eq!(values, [("pin", &b"0000"[..]), ("x", b"1")]);
        assert_eq!(content.secrets, ["Secret/b"]);
        assert_eq!(content.sha256, hex(digest(&SHA256, &content.block).as_ref()));
    }

    #[test]
    fn a_sealed_secret_is_served_in_its_place_and_config_only() {
        let sealed_as = |identity: &str, version: &str, number: usize| {
            let (mut status, stored) = part(PartKind::Secret, "b", 1, &[("pin", b"0000".to_vec())]);
            status.digest = seals(identity).seal(version, number, &part_digest(&stored.contents, Some(&hmac_key())));
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
        status.digest = part_digest(&other.contents, Some(&hmac_key()));
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
}
