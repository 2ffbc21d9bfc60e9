//! The revision of a git repository that is requested.

use std::fmt;

use semver::VersionReq;

/// The maximum length of a ref's name.
const MAX_REF_BYTES: usize = 255;

/// The error for a revision that can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RevisionError {
    /// Git accepts no such name.
    #[error("{0} is not a name that git accepts for a branch or a tag")]
    Name(&'static str),
    /// The text is not a range of versions.
    #[error("semver must be a range of versions, such as \">=1.2, <2\" or \"1.x\"")]
    Range,
    /// The text is not the id of a commit.
    #[error("commit must be the whole id of a commit, of 40 hex digits")]
    Commit,
}

/// The revision that is requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revision {
    /// The branch that the server's HEAD names.
    Head,
    /// The newest commit of a branch.
    Branch(String),
    /// The commit of a tag.
    Tag(String),
    /// The tag with the highest version in this range; `v1.2.0` is 1.2.0.
    Semver(String),
    /// The commit with this id.
    Commit(String),
}

impl Revision {
    /// Checks that git accepts the revision.
    pub fn check(&self) -> Result<(), RevisionError> {
        let check_ref = |name: &str, kind| if is_ref(name) { Ok(()) } else { Err(RevisionError::Name(kind)) };
        match self {
            Self::Head => Ok(()),
            Self::Branch(name) => check_ref(name, "branch"),
            Self::Tag(name) => check_ref(name, "tag"),
            Self::Semver(range) if range.len() > MAX_REF_BYTES => Err(RevisionError::Range),
            Self::Semver(range) => VersionReq::parse(range).map(drop).map_err(|_| RevisionError::Range),
            Self::Commit(id) if is_object_id(id) => Ok(()),
            Self::Commit(_) => Err(RevisionError::Commit),
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head => f.write_str("HEAD"),
            Self::Branch(name) => write!(f, "branch {name}"),
            Self::Tag(name) => write!(f, "tag {name}"),
            Self::Semver(range) => write!(f, "tag with a version in {range}"),
            Self::Commit(id) => write!(f, "commit {id}"),
        }
    }
}

/// Returns whether the text is the whole id of an object, by SHA-1 or SHA-256.
pub fn is_object_id(id: &str) -> bool {
    matches!(id.len(), 40 | 64) && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Returns whether the text is a name by the rules of git check-ref-format, and can't be taken for an option of a
/// program.
pub fn is_ref(name: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && !part.starts_with(['.', '-'])
            && !part.ends_with('.')
            && part.strip_suffix(".lock").is_none()
    };
    let is_allowed = |c: char| !c.is_control() && !c.is_whitespace() && !"~^:?*[\\".contains(c);
    name.len() <= MAX_REF_BYTES
        && name != "@"
        && name.chars().all(is_allowed)
        && !name.contains("..")
        && !name.contains("@{")
        && name.split('/').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_git() {
        for good in ["main", "release/1.2", "v1.0.0", "a-b_c", "ü"] {
            assert_eq!(Revision::Branch(good.to_owned()).check(), Ok(()), "{good}");
        }
        for bad in [
            "",
            "-d",
            "--upload-pack=id",
            "a/-d",
            "a..b",
            "a b",
            "a\nb",
            "a\0",
            ".a",
            "a/.b",
            "a.",
            "a.lock",
            "a.lock/b",
            "/a",
            "a/",
            "a//b",
            "@",
            "a@{1}",
            "a~1",
            "a^",
            "a:b",
            "a*",
            "a?",
            "a[",
            "a\\b",
        ] {
            assert!(Revision::Tag(bad.to_owned()).check().is_err(), "{bad:?}");
        }
        let long = "a".repeat(MAX_REF_BYTES + 1);
        assert!(Revision::Branch(long).check().is_err());
    }

    #[test]
    fn a_commit_is_a_whole_id() {
        assert_eq!(Revision::Commit("0a".repeat(20)).check(), Ok(()));
        for bad in ["", "0a", "HEAD", &"0A".repeat(20), &"0g".repeat(20), &"0".repeat(41)] {
            assert!(Revision::Commit(bad.to_owned()).check().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_range_is_one_of_cargo() {
        for good in ["1", ">=1.2, <2", "^1.2.3", "*", "1.x"] {
            assert_eq!(Revision::Semver(good.to_owned()).check(), Ok(()), "{good}");
        }
        assert!(Revision::Semver("newest".to_owned()).check().is_err());
    }
}
