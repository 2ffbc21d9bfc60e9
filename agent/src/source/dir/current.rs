//! Reads which version is current from the link or the file `current` of a config's folder.

use std::path::{Component, Path};

use nudge_protocol::{NameError, VersionName};

/// Longest content of a `current` file, in bytes. A version's name has at most 63 characters.
pub(super) const MAX_CURRENT_BYTES: u64 = 256;

/// Why `current` can't be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CurrentError {
    /// It names no valid version.
    #[error("{0}")]
    Name(#[from] NameError),
    /// The link does not lead to a folder beside it.
    #[error("the link points to {target:?}; it must point to a version's folder beside it")]
    Link {
        /// Where it points.
        target: String,
    },
    /// The file does not hold one name.
    #[error("the file must hold the name of a version and nothing else")]
    File,
    /// It is neither a link nor a file.
    #[error("it must be a symbolic link to a version's folder, or a file that holds the version's name")]
    Kind,
}

/// Reads the version's name from the content of a `current` file; white space around it does not count.
pub fn parse_current_file(content: &[u8]) -> Result<VersionName, CurrentError> {
    if content.len() as u64 > MAX_CURRENT_BYTES {
        return Err(CurrentError::File);
    }
    let text = std::str::from_utf8(content).map_err(|_| CurrentError::File)?;
    Ok(VersionName::new(text.trim())?)
}

/// Reads the version's name from where a `current` link in `folder` points: `1.0.1`, `./1.0.1`, or the same absolute.
pub fn parse_current_link(target: &Path, folder: &Path) -> Result<VersionName, CurrentError> {
    let refused = || CurrentError::Link { target: target.to_string_lossy().into_owned() };
    let relative = if target.is_absolute() { target.strip_prefix(folder).map_err(|_| refused())? } else { target };
    let mut parts = relative.components().filter(|part| *part != Component::CurDir);
    let (Some(Component::Normal(name)), None) = (parts.next(), parts.next()) else {
        return Err(refused());
    };
    Ok(VersionName::new(&name.to_string_lossy())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_one_name() {
        assert_eq!(parse_current_file(b"1.0.1\n").unwrap().as_str(), "1.0.1");
        assert_eq!(parse_current_file(b" blue ").unwrap().as_str(), "blue");
        for bad in [&b""[..], b"..", b"current", b"a/b", b"1.0 1.1", b"\xff", &[b'a'; 257]] {
            assert!(parse_current_file(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_link_points_to_a_folder_beside_it() {
        let folder = Path::new("/etc/nudge/shop");
        for good in ["1.0.1", "./1.0.1", "1.0.1/", "/etc/nudge/shop/1.0.1"] {
            assert_eq!(parse_current_link(Path::new(good), folder).unwrap().as_str(), "1.0.1", "{good}");
        }
        for bad in ["", ".", "..", "../other/1.0.1", "a/b", "/etc/other/1.0.1", "/etc/nudge/shop", "current", "\u{e9}"]
        {
            assert!(parse_current_link(Path::new(bad), folder).is_err(), "{bad}");
        }
    }
}
