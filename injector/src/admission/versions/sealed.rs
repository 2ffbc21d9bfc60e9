//! A version that is complete, or was and is deleted, takes back what belonged to it and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use super::shape::PartId;
use crate::admission::lookups::DigestAlgorithm;
use crate::admission::object::VersionObject;
use crate::admission::verdict::Denial;
use crate::api::{RetiredVersion, VersionStatus, VersionedConfigStatus};

/// The digests of the object under review, by algorithm.
pub type Digests = BTreeMap<DigestAlgorithm, String>;

/// Which digests of the object [`decide`] compares; empty where the record says nothing about the version.
pub fn needed_digests(id: &PartId, record: Option<&VersionedConfigStatus>) -> BTreeSet<DigestAlgorithm> {
    let Some(record) = record else { return BTreeSet::new() };
    let version = id.version.as_str();
    let sealed = record.version(version).into_iter().flat_map(|sealed| sealed.parts.iter().map(|part| &part.digest));
    let retired = retired(record, version).into_iter().flat_map(|retired| &retired.digests);
    sealed.chain(retired).filter_map(|digest| DigestAlgorithm::of(digest)).collect()
}

/// Decides whether an object may come, by what the config's status records.
pub fn decide(
    object: &VersionObject,
    id: &PartId,
    record: Option<&VersionedConfigStatus>,
    digests: &Digests,
) -> Result<(), Denial> {
    let Some(record) = record else { return Ok(()) };
    other_version(object, id, record)?;
    if let Some(sealed) = record.version(id.version.as_str()) {
        return of_sealed(object, id, sealed, digests);
    }
    retired(record, id.version.as_str()).map_or(Ok(()), |retired| of_retired(object, id, retired, digests))
}

fn retired<'a>(record: &'a VersionedConfigStatus, version: &str) -> Option<&'a RetiredVersion> {
    record.retired.iter().find(|retired| retired.version == version)
}

/// A kubelet may hold the old bytes under the object's name, so a name stays with its version.
fn other_version(object: &VersionObject, id: &PartId, record: &VersionedConfigStatus) -> Result<(), Denial> {
    let others = record.versions.iter().filter(|other| other.version != id.version.as_str());
    let mut named = others.filter(|other| position(object, other).is_some());
    let Some(other) = named.next() else { return Ok(()) };
    Err(Denial::forbidden(format!(
        "{} can't be part of version {} of config {}, because an object of that name is part of version {}; give it \
         another name",
        object.title(),
        id.version,
        id.config,
        other.version
    )))
}

fn of_sealed(object: &VersionObject, id: &PartId, sealed: &VersionStatus, digests: &Digests) -> Result<(), Denial> {
    let PartId { config, version, .. } = id;
    let title = object.title();
    let Some(position) = position(object, sealed) else {
        return Err(Denial::forbidden(format!(
            "{title} can't be part of version {version} of config {config}, which is complete with {}; give it another \
             {}",
            parts(sealed),
            nudge_protocol::labels::VERSION
        )));
    };
    if id.part != position + 1 || id.parts != sealed.parts.len() {
        return Err(Denial::forbidden(format!(
            "{title} was part {} of {} of version {version} of config {config} and can be put back only as that; correct \
             the label {} and the annotation {}",
            position + 1,
            sealed.parts.len(),
            nudge_protocol::labels::PART,
            nudge_protocol::labels::PARTS
        )));
    }
    if is_known(digests, &sealed.parts[position].digest) {
        return Ok(());
    }
    Err(Denial::forbidden(format!(
        "{title} can be put back into version {version} of config {config} only with the content it had; give other \
         content another version"
    )))
}

fn of_retired(object: &VersionObject, id: &PartId, retired: &RetiredVersion, digests: &Digests) -> Result<(), Denial> {
    let digest = retired.digests.get(id.part - 1);
    let same = id.parts == retired.digests.len() && digest.is_some_and(|digest| is_known(digests, digest));
    if same {
        return Ok(());
    }
    Err(Denial::forbidden(format!(
        "{} can't be part of version {} of config {}, which was deleted and may come back only with the content it had, \
         because nodes may still hold that; give other content another version",
        object.title(),
        id.version,
        id.config
    )))
}

fn is_known(digests: &Digests, digest: &str) -> bool {
    DigestAlgorithm::of(digest).and_then(|algorithm| digests.get(&algorithm)).is_some_and(|made| made == digest)
}

fn position(object: &VersionObject, sealed: &VersionStatus) -> Option<usize> {
    sealed.parts.iter().position(|part| part.kind == object.kind && part.name == object.name())
}

fn parts(sealed: &VersionStatus) -> String {
    let names: Vec<String> = sealed.parts.iter().map(|part| format!("{} {}", part.kind, part.name)).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::shape::check;
    use super::*;
    use crate::admission::fixtures::{content, digest, part, retired, sealed, sentence, set_annotation, set_label};
    use crate::api::PartKind;

    fn decided(object: &VersionObject, record: &VersionedConfigStatus) -> Result<(), Denial> {
        let id = check(object).unwrap();
        let needed = needed_digests(&id, Some(record)).into_iter();
        let digests = needed.map(|algorithm| (algorithm, digest(&object.content, algorithm))).collect();
        decide(object, &id, Some(record), &digests)
    }

    fn changed(mut object: VersionObject) -> VersionObject {
        object.content = content(&[("lives", "4")]);
        object
    }

    #[test]
    fn what_the_record_does_not_know_may_come() {
        let object = part(PartKind::ConfigMap, "a");
        assert_eq!(decided(&object, &VersionedConfigStatus::default()), Ok(()));
        let id = check(&object).unwrap();
        assert!(needed_digests(&id, None).is_empty());
        assert_eq!(decide(&object, &id, None, &Digests::new()), Ok(()));
    }

    #[test]
    fn a_sealed_version_takes_back_its_own_parts_only() {
        let record = VersionedConfigStatus { versions: vec![sealed("1.0.1", &["a", "b"])], ..Default::default() };
        let numbered = |name: &str, number: &str| {
            let mut object = part(PartKind::ConfigMap, name);
            set_label(&mut object, nudge_protocol::labels::PART, number);
            set_annotation(&mut object, nudge_protocol::labels::PARTS, "2");
            object
        };
        assert_eq!(decided(&numbered("b", "2"), &record), Ok(()));
        assert_eq!(
            sentence(decided(&numbered("c", "2"), &record)),
            "ConfigMap c can't be part of version 1.0.1 of config shop, which is complete with ConfigMap a, ConfigMap b; give \
             it another nudge.dev/version"
        );
        assert_eq!(
            sentence(decided(&changed(numbered("b", "2")), &record)),
            "ConfigMap b can be put back into version 1.0.1 of config shop only with the content it had; give other content \
             another version"
        );
        assert_eq!(
            sentence(decided(&numbered("b", "1"), &record)),
            "ConfigMap b was part 2 of 2 of version 1.0.1 of config shop and can be put back only as that; correct the label \
             nudge.dev/part and the annotation nudge.dev/parts"
        );
        let mut secret = numbered("b", "2");
        secret.kind = PartKind::Secret;
        assert!(decided(&secret, &record).is_err());
    }

    #[test]
    fn a_name_stays_with_its_version() {
        let record = VersionedConfigStatus { versions: vec![sealed("1.0.0", &["a"])], ..Default::default() };
        assert_eq!(decided(&part(PartKind::ConfigMap, "b"), &record), Ok(()));
        assert_eq!(
            sentence(decided(&part(PartKind::ConfigMap, "a"), &record)),
            "ConfigMap a can't be part of version 1.0.1 of config shop, because an object of that name is part of version \
             1.0.0; give it another name"
        );
    }

    #[test]
    fn a_deleted_version_comes_back_with_its_content_only() {
        let object = part(PartKind::ConfigMap, "any");
        for algorithm in [DigestAlgorithm::Sha256, DigestAlgorithm::HmacSha256] {
            let digests = [digest(&object.content, algorithm)];
            let record = VersionedConfigStatus { retired: vec![retired("1.0.1", &digests)], ..Default::default() };
            assert_eq!(decided(&object, &record), Ok(()));
            assert_eq!(
                sentence(decided(&changed(object.clone()), &record)),
                "ConfigMap any can't be part of version 1.0.1 of config shop, which was deleted and may come back only with \
                 the content it had, because nodes may still hold that; give other content another version"
            );
        }
        let two = VersionedConfigStatus {
            retired: vec![retired("1.0.1", &[digest(&object.content, DigestAlgorithm::Sha256), "sha256:b".into()])],
            ..Default::default()
        };
        assert!(decided(&object, &two).is_err(), "half a version is another version");
    }

    #[test]
    fn a_digest_of_a_later_nudge_matches_nothing() {
        let record =
            VersionedConfigStatus { retired: vec![retired("1.0.1", &["blake9:a".into()])], ..Default::default() };
        assert!(decided(&part(PartKind::ConfigMap, "a"), &record).is_err());
    }
}
