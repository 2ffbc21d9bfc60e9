//! Which repository of which registry.

use std::fmt;

use super::pick::{Pick, is_digest, is_tag};
use crate::outbound::{Address, AddressError};

/// A repository that can't be named so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// Another scheme.
    #[error("it must begin with oci://, or with oci+http:// for a registry without TLS")]
    Scheme,
    /// The registry.
    #[error(transparent)]
    Registry(#[from] AddressError),
    /// The repository.
    #[error(
        "it must name a repository, as in oci://registry.example.com/team/shop: lower-case letters and digits, with the separators ._- \
         within names"
    )]
    Repository,
    /// The tag.
    #[error("the repository must be followed by :TAG or @sha256:DIGEST")]
    Version,
}

/// The most bytes of a repository's name, as registries have it.
const MAX_REPOSITORY: usize = 255;

/// A repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    address: Address,
    registry: String,
    repository: String,
}

impl Reference {
    /// Reads `oci://registry[:port]/team/shop`. `oci+http://` is a registry without TLS, inside of a cluster.
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        let (scheme, rest) = match (text.strip_prefix("oci://"), text.strip_prefix("oci+http://")) {
            (Some(rest), _) => ("https", rest),
            (_, Some(rest)) => ("http", rest),
            _ => return Err(ReferenceError::Scheme),
        };
        if rest.contains(['?', '#', '\\']) {
            return Err(AddressError::More.into());
        }
        let (registry, repository) = rest.split_once('/').ok_or(ReferenceError::Repository)?;
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

    /// Where the registry is.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The name within the registry.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The registry, as the user calls it.
    pub fn registry(&self) -> &str {
        &self.registry
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.address.tls { "oci" } else { "oci+http" };
        write!(to, "{scheme}://{}/{}", self.registry, self.repository)
    }
}

/// A repository with what of it is wanted, as people write it on one line: `oci://registry/team/shop:1.2//config/prod`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// The repository.
    pub reference: Reference,
    /// The tag or the digest, if there is one.
    pub pick: Option<Pick>,
    /// The folder behind `//`, or nothing.
    pub path: String,
}

impl Located {
    /// Reads it.
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        let scheme = text.find("://").ok_or(ReferenceError::Scheme)?.saturating_add("://".len());
        let end = text[scheme..].find("//").map_or(text.len(), |at| scheme.saturating_add(at));
        let (name, path) = (&text[..end], text[end..].trim_matches('/'));
        let (name, pick) = match name[scheme..].split_once('@') {
            Some((before, digest)) if is_digest(digest) => {
                (&name[..scheme.saturating_add(before.len())], Some(Pick::Digest(digest.to_owned())))
            }
            // Neither is a user in front of the host.
            Some(_) => return Err(ReferenceError::Version),
            None => match name.rfind(['/', ':']).filter(|at| *at > scheme && name[*at..].starts_with(':')) {
                // A port has no slash in front of it.
                Some(at) if name[scheme..at].contains('/') => {
                    let tag = &name[at.saturating_add(1)..];
                    if !is_tag(tag) {
                        return Err(ReferenceError::Version);
                    }
                    (&name[..at], Some(Pick::Tag(tag.to_owned())))
                }
                _ => (name, None),
            },
        };
        Ok(Self { reference: Reference::parse(name)?, pick, path: path.to_owned() })
    }
}

/// Names between slashes, of letters and digits with single separators within.
fn is_repository(text: &str) -> bool {
    let in_name = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit();
    let is_name = |name: &str| {
        let bytes = name.as_bytes();
        let ends = bytes.first().zip(bytes.last()).is_some_and(|(first, last)| in_name(*first) && in_name(*last));
        let separated = name.split(|it: char| it.is_ascii_lowercase() || it.is_ascii_digit());
        let separator = |it: &str| matches!(it, "" | "." | "_" | "__") || it.bytes().all(|it| it == b'-');
        ends && separated.into_iter().all(separator)
    };
    text.len() <= MAX_REPOSITORY && text.split('/').all(is_name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_repository_is_read() {
        let read = |text: &str| {
            let it = Reference::parse(text).unwrap();
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
            ("oci://user:hidden@a/b", ReferenceError::Registry(AddressError::More)),
            ("oci://a/b?c", ReferenceError::Registry(AddressError::More)),
            ("oci:///b", ReferenceError::Registry(AddressError::Host)),
            ("oci://a:0/b", ReferenceError::Registry(AddressError::Port)),
        ] {
            assert_eq!(Reference::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn one_line_names_tag_digest_and_path() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let read = |text: &str| {
            let Located { reference, pick, path } = Located::parse(text).unwrap();
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
            assert!(Located::parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_can_stand_in_a_request(text in "oci://\\PC{0,30}") {
            if let Ok(Located { reference, .. }) = Located::parse(&text) {
                prop_assert_eq!(Reference::parse(&reference.to_string()), Ok(reference.clone()));
                prop_assert!(reference.to_string().bytes().all(|it| it.is_ascii_graphic()));
            }
        }
    }
}
