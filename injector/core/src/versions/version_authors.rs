//! The authors of a sealed version: the creators of its parts, and the user who set the spec of the source that made
//! it.

use std::collections::BTreeSet;
use std::sync::Arc;

use nudge_api::{PartKind, VersionStatus};

use super::digest_names::is_of_source;
use super::seal::Seals;
use super::seal_check::{FactsByUid, facts_of};
use crate::governance::Authors;
use crate::keys::PartMeta;

/// Returns the authors of the version, and the parts that must be read before they are known.
pub(crate) fn authors(
    version: &VersionStatus,
    parts: &[Arc<PartMeta>],
    facts: &FactsByUid,
    seals: &Seals,
) -> (Authors, Vec<(PartKind, String)>) {
    let of_source = is_of_source(&version.version);
    let (mut users, mut unread, mut unknown) = (BTreeSet::new(), Vec::new(), false);
    for (sealed, number) in version.parts.iter().zip(1..) {
        let Some(part) = parts.iter().find(|part| part.kind == sealed.kind && part.uid == sealed.uid) else {
            unknown = true;
            continue;
        };
        let Some(facts) = facts_of(facts, part) else {
            unread.push((part.kind, part.name.clone()));
            continue;
        };
        // The author of another content is not an author of the version.
        let author = facts.author.clone().filter(|_| facts.is_sealed(&sealed.digest, seals, &version.version, number));
        // The author's note covers the setter's note, too. In a version that no source has made, the setter's note is a
        // copy.
        let setter = facts.setter.clone().filter(|_| author.is_some() && of_source);
        unknown |= author.is_none() || (setter.is_none() && of_source);
        users.extend(author.into_iter().chain(setter));
    }
    let authors = match (unknown || version.parts.is_empty(), unread.is_empty()) {
        (true, _) if of_source => Authors::SetterUnknown,
        (true, _) => Authors::Unknown,
        (false, false) => Authors::Unread,
        (false, true) => Authors::Known(users),
    };
    (authors, unread)
}

#[cfg(test)]
mod tests {
    use nudge_api::{PartStatus, VersionState};

    use super::super::seal::tests::seals;
    use super::super::seal_check::tests::{facts, part};
    use super::*;

    #[test]
    fn who_set_the_spec_of_a_source_is_an_author_of_its_versions() {
        let name = format!("{}0123", super::super::digest_names::SOURCE_PREFIX);
        let of = |name: &str, author: Option<&str>, setter: Option<&str>| {
            let part = Arc::new(part(PartKind::ConfigMap, "a", name));
            let version: VersionStatus = serde_json::from_value(serde_json::json!({
                "version": name, "state": "Available", "keys": 1, "bytes": 1,
                "parts": [{"kind": "ConfigMap", "name": "a", "uid": part.uid, "digest": "sha256:a"}],
            }))
            .unwrap();
            let mut known = facts(&part, "a");
            (known.author, known.setter) = (author.map(str::to_owned), setter.map(str::to_owned));
            let known = FactsByUid::from([(part.uid.clone(), known)]);
            authors(&version, std::slice::from_ref(&part), &known, &seals()).0
        };
        let both = Authors::Known(["sources", "alice"].map(str::to_owned).into());
        assert_eq!(of(&name, Some("sources"), Some("alice")), both);
        assert_eq!(of(&name, Some("sources"), None), Authors::SetterUnknown);
        assert_eq!(of(&name, None, Some("alice")), Authors::SetterUnknown);
        let alice = Authors::Known(["alice".to_owned()].into());
        assert_eq!(of("1.2.3", Some("alice"), Some("bob")), alice, "a note that alice has copied");
    }

    #[test]
    fn they_are_those_of_all_parts_as_they_were_sealed() {
        let parts = ["a", "b"].map(|name| Arc::new(part(PartKind::ConfigMap, name, "2")));
        let of = |author: &str, at: usize| {
            let mut known = facts(&parts[at], &parts[at].name);
            known.author = Some(author.to_owned());
            (parts[at].uid.clone(), known)
        };
        let sealed = |part: &Arc<PartMeta>| PartStatus {
            kind: part.kind,
            name: part.name.clone(),
            uid: part.uid.clone(),
            digest: format!("sha256:{}", part.name),
        };
        let version = VersionStatus {
            version: "2".to_owned(),
            state: VersionState::Available,
            digest: String::new(),
            parts: parts.iter().map(sealed).collect(),
            keys: 2,
            bytes: 2,
            seal_time: None,
            consent: None,
        };
        let both = FactsByUid::from([of("alice", 0), of("bob", 1)]);
        let known = |facts: &FactsByUid| authors(&version, &parts, facts, &seals());
        let users = Authors::Known(["alice", "bob"].map(str::to_owned).into());
        assert_eq!(known(&both), (users, Vec::new()));
        let one = FactsByUid::from([of("alice", 0)]);
        assert_eq!(known(&one), (Authors::Unread, vec![(PartKind::ConfigMap, "b".to_owned())]));
        assert_eq!(known(&FactsByUid::new()).1.len(), 2);
        let mut without = both.clone();
        without.get_mut(&parts[1].uid).unwrap().author = None;
        assert_eq!(known(&without).0, Authors::Unknown);
        let mut other = both.clone();
        other.get_mut(&parts[1].uid).unwrap().plain = Some("sha256:other".to_owned());
        assert_eq!(known(&other).0, Authors::Unknown, "another content");
        assert_eq!(authors(&version, &parts[..1], &both, &seals()).0, Authors::Unknown, "a part is gone");
        let none = VersionStatus { parts: Vec::new(), ..version.clone() };
        assert_eq!(authors(&none, &parts, &both, &seals()).0, Authors::Unknown);
    }
}
