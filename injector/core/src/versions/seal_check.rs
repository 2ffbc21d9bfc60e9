//! The check whether a version is complete, by the labels of its parts and, if needed, their contents.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use nudge_api::{PartKind, PartStatus, RetiredVersion};
use nudge_protocol::VersionName;
use nudge_protocol::block::{BLOCK_HEADER_BYTES, ENTRY_HEADER_BYTES, MAX_BLOCK_BYTES};
use nudge_protocol::limits::MAX_KEYS;
use nudge_protocol::plural::counted;

use super::content_digests::ContentDigests;
use super::digest_names::digest_prefix;
use super::part_facts::{PartFacts, object_name};
use super::part_labels::PartNumber;
use super::seal::Seals;
use crate::keys::PartMeta;

/// The facts by the uid of the object.
pub type FactsByUid = HashMap<String, PartFacts>;

/// The result of the check whether a version can be sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SealCheck {
    /// The version is complete and valid.
    Complete {
        /// The objects of the version.
        parts: Vec<PartStatus>,
        /// The number of its keys.
        keys: u32,
        /// The number of bytes of its values.
        bytes: u64,
        /// Whether the version may become current by itself, because all of its parts are marked.
        marked: bool,
    },
    /// Objects are missing; more may come. Holds the message.
    Incomplete(String),
    /// The version breaks a rule, and only a person can repair it. Holds the message.
    Invalid(String),
    /// The contents of these objects must be read first.
    Unread(Vec<(PartKind, String)>),
    /// The version breaks a rule of spec.validation. Holds the message.
    Refused(String),
    /// The version must be judged by spec.validation first. Holds why that is not possible.
    Unjudged(Option<String>),
}

/// Returns the facts of this object, if they are of its present state.
pub(super) fn facts_of<'a>(facts: &'a FactsByUid, part: &PartMeta) -> Option<&'a PartFacts> {
    facts.get(&part.uid).filter(|facts| facts.immutable || facts.resource_version == part.resource_version)
}

/// Judges a version that is not sealed by the objects that have its labels.
pub fn seal_check(
    version: &str,
    parts: &[Arc<PartMeta>],
    facts: &FactsByUid,
    retired: Option<&RetiredVersion>,
    seals: &Seals,
) -> SealCheck {
    check_parts(version, parts, facts, retired, seals).unwrap_or_else(SealCheck::Invalid)
}

/// Judges the version. What may still come is not a fault: first missing objects, then unread ones. Contents are
/// compared only when all of them are there, so that the first message names what the user can correct.
fn check_parts(
    version: &str,
    parts: &[Arc<PartMeta>],
    facts: &FactsByUid,
    retired: Option<&RetiredVersion>,
    seals: &Seals,
) -> Result<SealCheck, String> {
    VersionName::new(version).map_err(|error| error.to_string())?;
    let Some(ordered) = in_order(version, parts)? else {
        let count = parts.first().map_or(Ok(1), |part| part_number(part).map(PartNumber::count))?;
        return Ok(SealCheck::Incomplete(format!(
            "version {version} has {} of its {}; create the others, or correct nudge.dev/parts by deleting and creating them",
            parts.len(),
            counted(count, "part")
        )));
    };
    let unread: Vec<(PartKind, String)> = ordered
        .iter()
        .filter(|part| facts_of(facts, part).is_none())
        .map(|part| (part.kind, part.name.clone()))
        .collect();
    if !unread.is_empty() {
        return Ok(SealCheck::Unread(unread));
    }
    if let Some(prefix) = digest_prefix(version) {
        let contents = ordered.iter().filter_map(|part| Some((part.kind, facts_of(facts, part)?)));
        if ContentDigests::of_facts(contents).name(prefix, seals) != version {
            return Err(format!(
                "names that begin with {prefix} are for versions that Nudge makes, and {version} is not the digest \
                 of its content; create it under another name"
            ));
        }
    }
    let mut sealed = Vec::new();
    let mut is_unchanged = retired.is_none_or(|retired| retired.digests.len() == ordered.len());
    let mut owners: BTreeMap<&str, &PartMeta> = BTreeMap::new();
    let (mut bytes, mut block, mut marked) = (0, BLOCK_HEADER_BYTES, true);
    for (part, number) in ordered.iter().zip(1..) {
        let Some(facts) = facts_of(facts, part) else { continue };
        let name = object_name(part.kind, &part.name);
        if !facts.immutable {
            return Err(format!(
                "{name} of version {version} is not immutable, so it could change later; delete it and create it with immutable: true"
            ));
        }
        if let Some(rule) = &facts.bad_key {
            return Err(format!("{name} of version {version}: {rule}"));
        }
        for key in &facts.keys {
            if let Some(other) = owners.insert(key, part) {
                let other = object_name(other.kind, &other.name);
                return Err(format!(
                    "key {key} of version {version} is in {other} and in {name}; keep it in one of them"
                ));
            }
            block += ENTRY_HEADER_BYTES + key.len();
        }
        bytes += facts.bytes;
        marked &= facts.marked;
        let before = retired.and_then(|retired| retired.digests.get(number - 1));
        is_unchanged &= before.is_none_or(|digest| facts.is_sealed(digest, seals, version, number));
        sealed.push(PartStatus {
            kind: part.kind,
            name: part.name.clone(),
            uid: part.uid.clone(),
            digest: facts.digest(seals, version, number),
        });
    }
    let block = u64::try_from(block).unwrap_or(u64::MAX).saturating_add(bytes);
    if owners.len() > MAX_KEYS || block > MAX_BLOCK_BYTES as u64 {
        return Err(format!(
            "version {version} has {} and {block} bytes; at most {MAX_KEYS} keys and {MAX_BLOCK_BYTES} bytes are allowed: \
             divide it into several configs",
            counted(owners.len(), "key")
        ));
    }
    if !is_unchanged {
        return Err(format!(
            "version {version} was deleted before and had other content, which nodes may still hold; use another version name"
        ));
    }
    let keys = u32::try_from(owners.len()).unwrap_or(u32::MAX);
    Ok(SealCheck::Complete { parts: sealed, keys, bytes, marked })
}

/// Returns the number of the object among the parts of its version.
pub(super) fn part_number(part: &PartMeta) -> Result<PartNumber, String> {
    PartNumber::parse(part.part.as_deref(), part.parts.as_deref()).map_err(|error| {
        let name = object_name(part.kind, &part.name);
        format!(
            "{name} can't be part of version {}: {error}; delete it and create it with the right value",
            part.version
        )
    })
}

/// Returns the parts in their order, or `None` while some are missing.
fn in_order(version: &str, parts: &[Arc<PartMeta>]) -> Result<Option<Vec<Arc<PartMeta>>>, String> {
    let Some(first) = parts.first() else { return Ok(None) };
    let count = part_number(first)?.count();
    let mut ordered: BTreeMap<usize, Arc<PartMeta>> = BTreeMap::new();
    for part in parts {
        let (name, own) = (object_name(part.kind, &part.name), part_number(part)?);
        if own.count() != count {
            let other = object_name(first.kind, &first.name);
            return Err(format!(
                "{name} and {other} of version {version} differ in nudge.dev/parts; delete one and create it with the other's number"
            ));
        }
        let number = own.number();
        if let Some(other) = ordered.insert(number, Arc::clone(part)) {
            let other = object_name(other.kind, &other.name);
            return Err(format!("{other} and {name} are both part {number} of version {version}; delete one of them"));
        }
    }
    Ok((ordered.len() == count).then(|| ordered.into_values().collect()))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::seal::tests::seals;
    use super::*;

    pub(crate) fn part(kind: PartKind, name: &str, version: &str) -> PartMeta {
        PartMeta {
            kind,
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            resource_version: "1".to_owned(),
            version: version.to_owned(),
            part: None,
            parts: None,
            prune: false,
            keep: None,
            created: 0,
            terminating: false,
        }
    }

    pub(crate) fn facts(part: &PartMeta, content: &str) -> PartFacts {
        PartFacts {
            uid: part.uid.clone(),
            resource_version: "1".to_owned(),
            immutable: true,
            marked: true,
            author: Some("alice".to_owned()),
            setter: None,
            plain: (part.kind == PartKind::ConfigMap).then(|| format!("sha256:{content}")),
            keyed: format!("hmac-sha256:{content}"),
            keys: vec![format!("{}-key", part.name)],
            bytes: content.len() as u64,
            bad_key: None,
        }
    }

    fn known(parts: &[Arc<PartMeta>]) -> FactsByUid {
        parts.iter().map(|part| (part.uid.clone(), facts(part, &part.name))).collect()
    }

    fn numbered(kind: PartKind, name: &str, number: &str, count: &str) -> Arc<PartMeta> {
        Arc::new(PartMeta { part: Some(number.to_owned()), parts: Some(count.to_owned()), ..part(kind, name, "1") })
    }

    fn invalid(parts: &[Arc<PartMeta>], facts: &FactsByUid) -> String {
        match seal_check("1", parts, facts, None, &seals()) {
            SealCheck::Invalid(message) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_object_is_a_version() {
        let parts = [Arc::new(part(PartKind::ConfigMap, "shop-1", "1"))];
        let unread = seal_check("1", &parts, &FactsByUid::new(), None, &seals());
        assert_eq!(unread, SealCheck::Unread(vec![(PartKind::ConfigMap, "shop-1".to_owned())]));
        let SealCheck::Complete { parts, keys: 1, bytes: 6, marked: true } =
            seal_check("1", &parts, &known(&parts), None, &seals())
        else {
            panic!()
        };
        assert_eq!(parts[0].digest, "sha256:shop-1");
    }

    #[test]
    fn parts_come_in_any_order_and_secrets_are_sealed() {
        let two = numbered(PartKind::Secret, "two", "2", "2");
        let one = numbered(PartKind::ConfigMap, "one", "1", "2");
        assert!(
            matches!(seal_check("1", std::slice::from_ref(&two), &FactsByUid::new(), None, &seals()), SealCheck::Incomplete(text) if text.contains("1 of its 2"))
        );
        let parts = [two, one];
        let SealCheck::Complete { parts, .. } = seal_check("1", &parts, &known(&parts), None, &seals()) else {
            panic!()
        };
        assert_eq!(
            parts.iter().map(|part| part.digest.as_str()).collect::<Vec<_>>(),
            ["sha256:one", seals().seal("1", 2, "hmac-sha256:two").as_str()]
        );
    }

    #[test]
    fn what_breaks_a_rule_is_named_with_the_remedy() {
        let map = |name, number, count| numbered(PartKind::ConfigMap, name, number, count);
        let none = FactsByUid::new();
        for (parts, message) in [
            (
                vec![map("a", "1", "2"), map("b", "1", "2")],
                "ConfigMap a and ConfigMap b are both part 1 of version 1; delete one of them",
            ),
            (
                vec![map("a", "3", "2")],
                "ConfigMap a can't be part of version 1: label nudge.dev/part must be a number from 1 to 2, not \"3\"; delete it and \
                 create it with the right value",
            ),
            (
                vec![map("a", "1", "17")],
                "ConfigMap a can't be part of version 1: annotation nudge.dev/parts must be a number from 1 to 16, not \"17\"; delete it \
                 and create it with the right value",
            ),
            (
                vec![map("a", "1", "2"), map("b", "2", "3")],
                "ConfigMap b and ConfigMap a of version 1 differ in nudge.dev/parts; delete one and create it with the other's number",
            ),
        ] {
            assert_eq!(invalid(&parts, &none), message);
        }
        let parts = [map("a", "1", "2"), map("b", "2", "2")];
        let mut same = known(&parts);
        same.get_mut("uid-b").unwrap().keys = vec!["a-key".to_owned()];
        assert_eq!(
            invalid(&parts, &same),
            "key a-key of version 1 is in ConfigMap a and in ConfigMap b; keep it in one of them"
        );
        let mut open = known(&parts);
        open.get_mut("uid-b").unwrap().immutable = false;
        assert!(invalid(&parts, &open).starts_with("ConfigMap b of version 1 is not immutable"));
        let mut large = known(&parts);
        large.get_mut("uid-b").unwrap().bytes = MAX_BLOCK_BYTES as u64;
        assert!(invalid(&parts, &large).contains("divide it into several configs"));
    }

    #[test]
    fn a_deleted_version_comes_back_with_the_same_content_only() {
        let parts = [Arc::new(part(PartKind::ConfigMap, "shop-1", "1"))];
        let retired = |digest: &str| RetiredVersion { version: "1".to_owned(), digests: vec![digest.to_owned()] };
        let back = seal_check("1", &parts, &known(&parts), Some(&retired("sha256:shop-1")), &seals());
        assert!(matches!(back, SealCheck::Complete { .. }));
        let other = seal_check("1", &parts, &known(&parts), Some(&retired("sha256:other")), &seals());
        assert!(matches!(other, SealCheck::Invalid(message) if message.ends_with("use another version name")));
        let more = RetiredVersion { digests: vec!["sha256:shop-1".to_owned(); 2], ..retired("") };
        assert!(matches!(seal_check("1", &parts, &known(&parts), Some(&more), &seals()), SealCheck::Invalid(_)));
    }

    #[test]
    fn a_deleted_secret_comes_back_with_the_same_content_only() {
        let parts = [Arc::new(part(PartKind::Secret, "keys-1", "1"))];
        let is_sealed = |digest: String| {
            let retired = RetiredVersion { version: "1".to_owned(), digests: vec![digest] };
            match seal_check("1", &parts, &known(&parts), Some(&retired), &seals()) {
                SealCheck::Complete { parts, .. } => {
                    assert_eq!(parts[0].digest, seals().seal("1", 1, "hmac-sha256:keys-1"));
                    true
                }
                _ => false,
            }
        };
        assert!(is_sealed(seals().seal("1", 1, "hmac-sha256:keys-1")));
        for other in ["hmac-sha256:other", "sha256:keys-1", "keys-1", ""] {
            assert!(!is_sealed(other.to_owned()) && !is_sealed(seals().seal("1", 1, other)), "{other}");
        }
        assert!(!is_sealed("hmac-sha256:keys-1".to_owned()), "a keyed digest is no seal");
    }

    #[test]
    fn facts_of_a_changeable_object_are_read_again_when_it_changed() {
        let parts = [Arc::new(PartMeta { resource_version: "2".to_owned(), ..part(PartKind::ConfigMap, "a", "1") })];
        let mut old = known(&parts);
        assert!(
            matches!(seal_check("1", &parts, &old, None, &seals()), SealCheck::Complete { .. }),
            "an immutable one does not change"
        );
        old.get_mut("uid-a").unwrap().immutable = false;
        assert!(matches!(seal_check("1", &parts, &old, None, &seals()), SealCheck::Unread(_)));
    }
}
