//! The choice of an artifact in a repository.

use semver::VersionReq;

/// The choice of an artifact: by a tag, a range of tags, or a digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The artifact that the tag names now.
    Tag(String),
    /// The highest tag within this range of semantic versions, such as `>=1.2, <2`.
    Semver(String),
    /// The artifact with this digest: `sha256:…`.
    Digest(String),
}

/// The error for a pick that no registry can serve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PickError {
    /// The text is not a tag.
    #[error("{0:?} is not a tag: a tag has 1 to 128 letters, digits and ._-, and must not begin with '.' or '-'")]
    Tag(String),
    /// The text is not a range of versions.
    #[error("{0:?} is not a range of versions; write one such as >=1.2, <2")]
    Semver(String),
    /// The text is not a digest.
    #[error("{0:?} is not a digest; write sha256: and 64 hex digits")]
    Digest(String),
}

impl Pick {
    /// Checks the form of the pick.
    pub fn check(&self) -> Result<(), PickError> {
        match self {
            Self::Tag(tag) if !is_tag(tag) => Err(PickError::Tag(tag.clone())),
            Self::Semver(range) => parse_range(range).map(drop),
            Self::Digest(digest) if !is_digest(digest) => Err(PickError::Digest(digest.clone())),
            Self::Tag(_) | Self::Digest(_) => Ok(()),
        }
    }
}

/// Parses a range of versions.
pub fn parse_range(text: &str) -> Result<VersionReq, PickError> {
    VersionReq::parse(text).map_err(|_| PickError::Semver(text.to_owned()))
}

/// Returns whether the text can be a tag.
pub fn is_tag(text: &str) -> bool {
    let is_tag_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=128).contains(&text.len()) && text.bytes().all(is_tag_byte) && !text.starts_with(['.', '-'])
}

/// Returns whether the text is a digest of SHA-256, the only kind that registries use in practice.
pub fn is_digest(text: &str) -> bool {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.strip_prefix("sha256:").is_some_and(|digits| digits.len() == 64 && digits.bytes().all(is_hex))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_form() {
        for good in ["v1", "1.2.3", "_a", "A-b.c", &"a".repeat(128)] {
            assert_eq!(Pick::Tag(good.to_owned()).check(), Ok(()), "{good}");
        }
        for bad in ["", ".a", "-a", "a b", "a/b", "a\n", "../a", &"a".repeat(129)] {
            assert!(Pick::Tag(bad.to_owned()).check().is_err(), "{bad}");
        }
        for good in ["1", "1.x", "^1.2", "~1.2.3", ">=1.0, <2", "*", ">=1.0.0-rc.1"] {
            assert_eq!(Pick::Semver(good.to_owned()).check(), Ok(()), "{good}");
        }
        assert!(Pick::Semver("latest".to_owned()).check().is_err());
        assert!(Pick::Digest("sha256:1".to_owned()).check().is_err());
    }

    #[test]
    fn a_digest_has_one_form() {
        let good = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
        assert!(is_digest(good));
        for bad in
            ["", "sha256:", "sha256:44", &good.to_uppercase(), &good.replace("256:", "512:"), &format!("{good}0")]
        {
            assert!(!is_digest(bad), "{bad}");
        }
    }
}
