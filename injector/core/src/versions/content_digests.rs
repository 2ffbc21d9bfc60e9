//! The digests of the parts of a content: the sealed version that has this content, and the name of a version that is
//! made of it.

use nudge_api::{Consent, PartKind, VersionState, VersionStatus, VersionedConfigStatus};
use nudge_protocol::hex::hex;

use super::digest::{Contents, PLAIN, part_digest};
use super::digest_names::{NAME_BYTES, SOURCE_PREFIX, TEXT_PREFIX, digest_of_parts, message};
use super::part_facts::PartFacts;
use super::seal::Seals;

/// The digests of one part.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PartDigests {
    kind: PartKind,
    /// The digest of a ConfigMap; `None` for a Secret, because a digest without a key lets others guess the content.
    plain: Option<String>,
    keyed: String,
}

/// The digests of the parts of a content, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentDigests(Vec<PartDigests>);

impl ContentDigests {
    /// Returns the digests of these parts.
    pub fn of<'a>(parts: impl IntoIterator<Item = (PartKind, &'a Contents)>, seals: &Seals) -> Self {
        let digests = |(kind, content): (PartKind, &Contents)| PartDigests {
            kind,
            plain: (kind == PartKind::ConfigMap).then(|| part_digest(content, None)),
            keyed: part_digest(content, Some(seals.content_key())),
        };
        Self(parts.into_iter().map(digests).collect())
    }

    /// Returns the digests of the parts that these facts are known of.
    pub(super) fn of_facts<'a>(parts: impl IntoIterator<Item = (PartKind, &'a PartFacts)>) -> Self {
        let digests = |(kind, PartFacts { plain, keyed, .. }): (PartKind, &PartFacts)| PartDigests {
            kind,
            plain: plain.clone(),
            keyed: keyed.clone(),
        };
        Self(parts.into_iter().map(digests).collect())
    }

    /// Returns the name of a version of this content that the control plane makes of a text.
    pub fn text_version(&self, seals: &Seals) -> String {
        self.name(TEXT_PREFIX, seals)
    }

    /// Returns the name of a version of this content that a source makes.
    pub fn source_version(&self, seals: &Seals) -> String {
        self.name(SOURCE_PREFIX, seals)
    }

    /// Returns the name with this beginning. It is keyed if a Secret is among the parts, so that it says nothing about
    /// a value.
    pub(super) fn name(&self, prefix: &str, seals: &Seals) -> String {
        let plain = self.0.iter().map(|part| Some((part.kind, part.plain.clone()?)));
        let name = plain.collect::<Option<Vec<_>>>().map_or_else(
            || hex(&seals.tag(&message(self.0.iter().map(|part| (part.kind, part.keyed.clone()))))[..NAME_BYTES]),
            digest_of_parts,
        );
        format!("{prefix}{name}")
    }

    /// Returns the number of parts.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns a sealed version with this content that pods can be moved to: the current one, the target, the previous
    /// one, or the newest other.
    pub fn find_version<'a>(&self, status: &'a VersionedConfigStatus, seals: &Seals) -> Option<&'a str> {
        let in_use = [&status.current_version, &status.target_version, &status.previous_version];
        let in_use = in_use.into_iter().flatten().filter_map(|name| status.version(name));
        let mut candidates = in_use.chain(status.versions.iter().rev());
        let is_usable = |sealed: &VersionStatus| {
            sealed.state != VersionState::Broken && sealed.consent != Some(Consent::NeededAnew)
        };
        candidates
            .find(|sealed| is_usable(sealed) && self.is_content_of(sealed, seals))
            .map(|sealed| sealed.version.as_str())
    }

    fn is_content_of(&self, sealed: &VersionStatus, seals: &Seals) -> bool {
        let is_same = |((part, stored), number): ((&PartDigests, &nudge_api::PartStatus), usize)| {
            let digest = if stored.digest.starts_with(PLAIN) {
                part.plain.clone()
            } else {
                Some(seals.seal(&sealed.version, number, &part.keyed))
            };
            part.kind == stored.kind && digest.as_ref() == Some(&stored.digest)
        };
        self.0.len() == sealed.parts.len() && self.0.iter().zip(&sealed.parts).zip(1..).all(is_same)
    }
}

#[cfg(test)]
mod tests {
    use nudge_api::PartStatus;
    use zeroize::Zeroizing;

    use super::super::seal::tests::seals;
    use super::*;

    fn content(value: &str) -> Contents {
        [("pin".to_owned(), Zeroizing::new(value.as_bytes().to_vec()))].into()
    }

    fn digests(parts: &[(PartKind, &str)]) -> ContentDigests {
        let contents: Vec<_> = parts.iter().map(|(kind, value)| (*kind, content(value))).collect();
        ContentDigests::of(contents.iter().map(|(kind, content)| (*kind, content)), &seals())
    }

    fn sealed(version: &str, parts: &[(PartKind, &str)]) -> VersionStatus {
        let part = |(&(kind, value), number): (&(PartKind, &str), usize)| PartStatus {
            kind,
            name: format!("{version}-{number}"),
            uid: format!("{version}-{number}"),
            digest: match kind {
                PartKind::ConfigMap => part_digest(&content(value), None),
                PartKind::Secret => {
                    seals().seal(version, number, &part_digest(&content(value), Some(seals().content_key())))
                }
            },
        };
        VersionStatus {
            version: version.to_owned(),
            state: VersionState::Available,
            digest: String::new(),
            parts: parts.iter().zip(1..).map(part).collect(),
            keys: 1,
            bytes: 1,
            seal_time: None,
            consent: None,
        }
    }

    #[test]
    fn a_text_is_the_version_that_has_its_content() {
        let (open, secret) = ((PartKind::ConfigMap, "4"), (PartKind::Secret, "4"));
        let versions =
            vec![sealed("1", &[open]), sealed("2", &[open, secret]), sealed("3", &[secret]), sealed("4", &[open])];
        let mut status = VersionedConfigStatus { versions, ..VersionedConfigStatus::default() };
        let find = |status: &VersionedConfigStatus, parts: &[(PartKind, &str)]| {
            digests(parts).find_version(status, &seals()).map(str::to_owned)
        };
        assert_eq!(find(&status, &[open]).as_deref(), Some("4"), "the newest");
        assert_eq!(find(&status, &[open, secret]).as_deref(), Some("2"));
        assert_eq!(find(&status, &[secret]).as_deref(), Some("3"));
        assert_eq!(find(&status, &[(PartKind::ConfigMap, "5")]), None);
        assert_eq!(find(&status, &[]), None, "nothing is no version");
        status.current_version = Some("1".to_owned());
        assert_eq!(find(&status, &[open]).as_deref(), Some("1"), "what pods run already comes first");
        status.versions[0].state = VersionState::Broken;
        status.versions[3].consent = Some(Consent::NeededAnew);
        assert_eq!(find(&status, &[open]), None, "no pod can be moved to these");
    }

    #[test]
    fn the_name_says_nothing_about_a_secret_and_differs_by_content() {
        let name = |kind, value| digests(&[(kind, value)]).text_version(&seals());
        let names = [
            name(PartKind::ConfigMap, "4"),
            name(PartKind::ConfigMap, "5"),
            name(PartKind::Secret, "4"),
            name(PartKind::Secret, "5"),
        ];
        assert!(names.iter().all(|name| name.starts_with("txt-") && name.len() == 44), "{names:?}");
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
        assert_eq!(name(PartKind::ConfigMap, "4"), names[0]);
    }
}
