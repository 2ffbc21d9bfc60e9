//! Reads which version is current from the link or the file `current` of a config's folder.

use std::path::{Component, Path, PathBuf};

use nudge_protocol::{NameError, VersionName};

/// The maximum size of a `current` file, in bytes. A version's name has at most 63 characters.
pub(super) const MAX_CURRENT_BYTES: u64 = 256;

/// The folder for git-sync's checkouts, next to its link to the newest checkout.
const CHECKOUTS: &str = ".worktrees";

/// The version that is current.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentVersion {
    /// The name of the version, which is also its folder's name.
    pub version: VersionName,
    /// The folder of the version within the config's.
    pub folder: PathBuf,
}

impl CurrentVersion {
    /// Returns the version whose folder lies next to `current`.
    fn beside(version: VersionName) -> Self {
        Self { folder: PathBuf::from(version.as_str()), version }
    }
}

/// Returns whether the folder of a version is a checkout of git-sync's.
pub(super) fn is_checkout(folder: &Path) -> bool {
    folder.parent().is_some_and(|parent| parent.ends_with(CHECKOUTS))
}

/// The reason why `current` can't be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CurrentError {
    /// `current` names no valid version.
    #[error("{0}")]
    Name(#[from] NameError),
    /// The link leads neither to a folder next to it nor to a checkout of git-sync's.
    #[error("the link points to {0:?}; it must point to a version's folder beside it, or to one in {CHECKOUTS} there")]
    Link(String),
    /// The file does not hold one name.
    #[error("the file must hold the name of a version and nothing else")]
    File,
    /// `current` is neither a link nor a file.
    #[error("it must be a symbolic link to a version's folder, or a file that holds the version's name")]
    Kind,
}

/// Reads the version's name from the content of a `current` file; white space around it does not count.
pub fn parse_current_file(content: &[u8]) -> Result<CurrentVersion, CurrentError> {
    if content.len() as u64 > MAX_CURRENT_BYTES {
        return Err(CurrentError::File);
    }
    let text = std::str::from_utf8(content).map_err(|_| CurrentError::File)?;
    Ok(CurrentVersion::beside(VersionName::new(text.trim())?))
}

/// Reads the version's name from the target of a `current` link in `folder`: `1.0.1`, `./1.0.1`, `.worktrees/9a3f0c`,
/// or the absolute path of such a folder.
pub fn parse_current_link(target: &Path, folder: &Path) -> Result<CurrentVersion, CurrentError> {
    let refuse = || CurrentError::Link(target.to_string_lossy().into_owned());
    let relative = if target.is_absolute() { target.strip_prefix(folder).map_err(|_| refuse())? } else { target };
    let parts: Vec<Component<'_>> = relative.components().filter(|part| *part != Component::CurDir).take(3).collect();
    match parts[..] {
        [Component::Normal(name)] => Ok(CurrentVersion::beside(VersionName::new(&name.to_string_lossy())?)),
        [Component::Normal(checkouts), Component::Normal(name)] if checkouts == CHECKOUTS => {
            let version = VersionName::new(&name.to_string_lossy())?;
            Ok(CurrentVersion { folder: Path::new(CHECKOUTS).join(version.as_str()), version })
        }
        _ => Err(refuse()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_one_name() {
        assert_eq!(parse_current_file(b"1.0.1\n").unwrap().version.as_str(), "1.0.1");
        assert_eq!(parse_current_file(b" blue ").unwrap().version.as_str(), "blue");
        for bad in [&b""[..], b"..", b"current", b"a/b", b"1.0 1.1", b"\xff", &[b'a'; 257]] {
            assert!(parse_current_file(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_link_points_to_a_folder_beside_it() {
        let folder = Path::new("/etc/nudge/shop");
        for good in ["1.0.1", "./1.0.1", "1.0.1/", "/etc/nudge/shop/1.0.1"] {
            let current = parse_current_link(Path::new(good), folder).unwrap();
            assert_eq!((current.version.as_str(), &*current.folder), ("1.0.1", Path::new("1.0.1")), "{good}");
        }
        for good in [".worktrees/9a3f0c", "./.worktrees/9a3f0c/", "/etc/nudge/shop/.worktrees/9a3f0c"] {
            let current = parse_current_link(Path::new(good), folder).unwrap();
            assert_eq!(current.version.as_str(), "9a3f0c", "{good}");
            assert!(current.folder == Path::new(".worktrees/9a3f0c") && is_checkout(&current.folder), "{good}");
        }
        for bad in ["", ".", "..", "../other/1.0.1", "a/b", "/etc/other/1.0.1", "/etc/nudge/shop", "current", "\u{e9}"]
            .into_iter()
            .chain([".worktrees", ".worktrees/..", ".worktrees/a/b", "../.worktrees/a", ".git/a"])
        {
            assert!(parse_current_link(Path::new(bad), folder).is_err(), "{bad}");
        }
    }
}
