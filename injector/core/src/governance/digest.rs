//! The digest that an approval names: one text for the whole version.

use nudge_api::VersionStatus;
use nudge_protocol::hex::hex;
use ring::digest::{Context, SHA256};

/// The size of the digest in bytes, which is that of the parts' digests.
const DIGEST_BYTES: usize = 24;
/// The number of digits that people compare.
const SHORT_DIGITS: usize = 32;

/// Returns the digest of a sealed version: over its name, and over the kind and digest of each of its parts in their
/// order. Content that is deleted and made again has the same digest, and other content never has it.
pub fn sealed_digest(version: &VersionStatus) -> String {
    let mut context = Context::new(&SHA256);
    let kinds = version.parts.iter().map(|part| (part.kind.to_string(), part.digest.as_str()));
    let parts = kinds.flat_map(|(kind, digest)| [kind, digest.to_owned()]);
    for text in [version.version.clone()].into_iter().chain(parts) {
        context.update(&(text.len() as u64).to_be_bytes());
        context.update(text.as_bytes());
    }
    format!("sha256:{}", hex(&context.finish().as_ref()[..DIGEST_BYTES]))
}

/// Returns the digest as people compare it: its first 32 hex digits, enough that nobody finds two contents with the
/// same digits.
pub fn short_digest(version: &VersionStatus) -> String {
    shorten_digest(&sealed_digest(version)).to_owned()
}

/// Returns a digest as people compare it.
pub(super) fn shorten_digest(digest: &str) -> &str {
    let digits = digest.strip_prefix("sha256:").unwrap_or(digest);
    digits.get(..SHORT_DIGITS).unwrap_or(digits)
}

#[cfg(test)]
mod tests {
    use nudge_api::{PartKind, PartStatus, VersionState};

    use super::*;

    fn version(name: &str, parts: &[(PartKind, &str)]) -> VersionStatus {
        let part = |&(kind, digest): &(PartKind, &str)| PartStatus {
            kind,
            name: format!("shop-{name}"),
            uid: digest.len().to_string(),
            digest: digest.to_owned(),
        };
        VersionStatus {
            version: name.to_owned(),
            state: VersionState::Available,
            digest: String::new(),
            parts: parts.iter().map(part).collect(),
            keys: 1,
            bytes: 1,
            seal_time: None,
            consent: None,
        }
    }

    #[test]
    fn it_is_of_the_name_and_all_contents_and_of_nothing_else() {
        use PartKind::{ConfigMap, Secret};
        let one = version("2", &[(ConfigMap, "sha256:a"), (Secret, "seal:b")]);
        let digest = sealed_digest(&one);
        assert_eq!(digest.len(), "sha256:".len() + 2 * DIGEST_BYTES);
        let mut again = one.clone();
        (again.parts[0].uid, again.parts[0].name, again.state) = ("9".into(), "other".into(), VersionState::Current);
        assert_eq!(sealed_digest(&again), digest);
        for other in [
            version("3", &[(ConfigMap, "sha256:a"), (Secret, "seal:b")]),
            version("2", &[(Secret, "seal:b"), (ConfigMap, "sha256:a")]),
            version("2", &[(Secret, "sha256:a"), (Secret, "seal:b")]),
            version("2", &[(ConfigMap, "sha256:a"), (Secret, "seal:c")]),
            version("2", &[(ConfigMap, "sha256:a")]),
            version("2", &[]),
        ] {
            assert_ne!(sealed_digest(&other), digest);
        }
    }
}
