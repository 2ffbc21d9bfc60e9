//! The reference to a repository of an OCI registry.

use std::fmt;

use super::artifact_pick::{Pick, is_digest, is_tag};
use crate::outbound::{Address, AddressError};

/// The error for a text that is not a reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// The scheme is neither oci nor oci+http.
    #[error("it must begin with oci://, or with oci+http:// for a registry without TLS")]
    Scheme,
    /// The address of the registry can't be used.
    #[error(transparent)]
    Registry(#[from] AddressError),
    /// The repository's name is missing or invalid.
    #[error(
        "it must name a repository, as in oci://registry.example.com/team/shop: lower-case letters and digits, with the separators ._- \
         within names"
    )]
    Repository,
    /// The tag or digest is invalid.
    #[error("the repository must be followed by :TAG or @sha256:DIGEST")]
    Version,
}

/// The maximum length of a repository's name in registries.
const MAX_REPOSITORY_BYTES: usize = 255;

/// A repository of a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OciReference {
    address: Address,
    registry: String,
    repository: String,
}

impl OciReference {
    /// Reads `oci://registry[:port]/team/shop`. `oci+http://` is a registry without TLS, inside of a cluster.
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        let (scheme, remainder) = match (text.strip_prefix("oci://"), text.strip_prefix("oci+http://")) {
            (Some(remainder), _) => ("https", remainder),
            (_, Some(remainder)) => ("http", remainder),
            _ => return Err(ReferenceError::Scheme),
        };
        if remainder.contains(['?', '#', '\\']) {
            return Err(AddressError::ExtraPart.into());
        }
        let (registry, repository) = remainder.split_once('/').ok_or(ReferenceError::Repository)?;
        let mut address = Address::parse(&format!("{scheme}://{registry}"))?;
        let mut repository = repository.trim_end_matches('/').to_owned();
        if !is_repository(&repository) {
            return Err(ReferenceError::Repository);
        }
        let registry = address.authority();
        // Docker Hub is known by another name than that of its registry.
        if ["docker.io", "index.docker.io"].contains(&address.host.as_str()) {
            "registry-1.docker.io".clone_into(&mut address.host);
            if !repository.contains('/') {
                repository = format!("library/{repository}");
            }
        }
        Ok(Self { address, registry, repository })
    }

    /// Returns the address of the registry.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Returns the repository's name within the registry.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Returns the name of the registry as the user wrote it.
    pub fn registry(&self) -> &str {
        &self.registry
    }
}

impl fmt::Display for OciReference {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.address.tls { "oci" } else { "oci+http" };
        write!(to, "{scheme}://{}/{}", self.registry, self.repository)
    }
}

/// A location of content in a repository, as users write it on one line: `oci://registry/team/shop:1.2//config/prod`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactLocation {
    /// The registry and the repository.
    pub reference: OciReference,
    /// The tag or the digest, if the reference has one.
    pub pick: Option<Pick>,
    /// The folder behind `//`; empty for the whole artifact.
    pub path: String,
}

impl ArtifactLocation {
    /// Parses a location.
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        let scheme = text.find("://").ok_or(ReferenceError::Scheme)?.saturating_add("://".len());
        let authority_end = text[scheme..].find("//").map_or(text.len(), |index| scheme.saturating_add(index));
        let (name, path) = (&text[..authority_end], text[authority_end..].trim_matches('/'));
        let (name, pick) = match name[scheme..].split_once('@') {
            Some((before, digest)) if is_digest(digest) => {
                (&name[..scheme.saturating_add(before.len())], Some(Pick::Digest(digest.to_owned())))
            }
            // The text before @ is not a user, either.
            Some(_) => return Err(ReferenceError::Version),
            None => match name.rfind(['/', ':']).filter(|index| *index > scheme && name[*index..].starts_with(':')) {
                // A port has no slash in front of it.
                Some(index) if name[scheme..index].contains('/') => {
                    let tag = &name[index.saturating_add(1)..];
                    if !is_tag(tag) {
                        return Err(ReferenceError::Version);
                    }
                    (&name[..index], Some(Pick::Tag(tag.to_owned())))
                }
                _ => (name, None),
            },
        };
        Ok(Self { reference: OciReference::parse(name)?, pick, path: path.to_owned() })
    }
}

/// Returns whether the text is a repository's name: parts between slashes, of letters and digits with single
/// separators.
fn is_repository(text: &str) -> bool {
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_name = |name: &str| {
        let bytes = name.as_bytes();
        let has_alphanumeric_ends = bytes
            .first()
            .zip(bytes.last())
            .is_some_and(|(first, last)| is_alphanumeric(*first) && is_alphanumeric(*last));
        let separated = name.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
        let is_separator = |text: &str| matches!(text, "" | "." | "_" | "__") || text.bytes().all(|byte| byte == b'-');
        has_alphanumeric_ends && separated.into_iter().all(is_separator)
    };
    text.len() <= MAX_REPOSITORY_BYTES && text.split('/').all(is_name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_repository_is_read() {
        let read = |text: &str| {
            let it = OciReference::parse(text).unwrap();
            (it.address().authority(), it.address().tls, it.repository().to_owned(), it.to_string())
        };
        let of = |authority: &str, tls, repository: &str, text: &str| {
            (authority.to_owned(), tls, repository.to_owned(), text.to_owned())
        };
        let text = "oci://registry.example.com/team/shop";
        assert_eq!(read(text), of("registry.example.com", true, "team/shop", text));
        let text = "oci+http://registry.tools.svc:5000/shop";
        assert_eq!(read(text), of("registry.tools.svc:5000", false, "shop", text));
        assert_eq!(read("oci://[fd00::1]:5000/a/b/"), of("[fd00::1]:5000", true, "a/b", "oci://[fd00::1]:5000/a/b"));
        let hub = of("registry-1.docker.io", true, "library/shop", "oci://docker.io/library/shop");
        assert_eq!(read("oci://docker.io/shop"), hub);
        for good in ["a", "a0", "a.b", "a_b", "a__b", "a---b", "a/b/c"] {
            assert!(is_repository(good), "{good}");
        }
    }

    #[test]
    fn nothing_else_is() {
        for (text, error) in [
            ("https://a/b", ReferenceError::Scheme),
            ("a/b", ReferenceError::Scheme),
            ("oci://a", ReferenceError::Repository),
            ("oci://a/", ReferenceError::Repository),
            ("oci://a/B", ReferenceError::Repository),
            ("oci://a/b//c", ReferenceError::Repository),
            ("oci://a/../b", ReferenceError::Repository),
            ("oci://a/b%2f", ReferenceError::Repository),
            ("oci://a/b..c", ReferenceError::Repository),
            ("oci://a/b:1", ReferenceError::Repository),
            ("oci://user:hidden@a/b", ReferenceError::Registry(AddressError::ExtraPart)),
            ("oci://a/b?c", ReferenceError::Registry(AddressError::ExtraPart)),
            ("oci:///b", ReferenceError::Registry(AddressError::Host)),
            ("oci://a:0/b", ReferenceError::Registry(AddressError::Port)),
        ] {
            assert_eq!(OciReference::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn one_line_names_tag_digest_and_path() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let read = |text: &str| {
            let ArtifactLocation { reference, pick, path } = ArtifactLocation::parse(text).unwrap();
            (reference.to_string(), pick, path)
        };
        let tag = |tag: &str| Some(Pick::Tag(tag.to_owned()));
        let of = |text: &str, wanted, path: &str| (text.to_owned(), wanted, path.to_owned());
        assert_eq!(read("oci://r/a"), of("oci://r/a", None, ""));
        assert_eq!(read("oci://r:5000/a"), of("oci://r:5000/a", None, ""));
        assert_eq!(read("oci://r:5000/a/b:1.2"), of("oci://r:5000/a/b", tag("1.2"), ""));
        assert_eq!(read("oci+http://r/a:1//config/prod/"), of("oci+http://r/a", tag("1"), "config/prod"));
        let by_digest = format!("oci://r/a@{digest}");
        assert_eq!(read(&format!("{by_digest}//x")), of("oci://r/a", Some(Pick::Digest(digest)), "x"));
        for bad in ["oci://r/a:", "oci://r/a:-b", "oci://r/a@b", "oci://user:pw@r/a", "oci://r:1:2/a", "r/a", "oci://r"]
        {
            assert!(ArtifactLocation::parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_can_stand_in_a_request(text in "oci://\\PC{0,30}") {
            if let Ok(ArtifactLocation { reference, .. }) = ArtifactLocation::parse(&text) {
                prop_assert_eq!(OciReference::parse(&reference.to_string()), Ok(reference.clone()));
                prop_assert!(reference.to_string().bytes().all(|it| it.is_ascii_graphic()));
            }
        }
    }
}
