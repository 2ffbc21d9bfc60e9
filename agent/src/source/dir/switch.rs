//! Makes another version current: checked first, then swapped in one step.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use nudge_protocol::{ConfigName, VersionName, names};

use super::dir_source::{ReadError, current_version, read_content};
use super::root::Root;
use crate::files::FileError;

/// The reason why a version can't be made current.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// The version can't be used, so the old one stays.
    #[error("{0}")]
    Read(#[from] ReadError),
    /// The link or file can't be written.
    #[error(transparent)]
    Write(#[from] FileError),
}

/// Makes `version` current in the folder `path` and returns the version that was current before. A `current` file stays
/// a file; otherwise a link is made. Readers see the old name or the new one, never anything between (rename(2)).
pub fn switch_current(
    path: &Path,
    config: &ConfigName,
    version: &VersionName,
) -> Result<Option<VersionName>, SwitchError> {
    let opened = Root::open(path);
    let root = opened.map_err(|source| ReadError::Folder { path: path.to_owned(), source })?;
    let before = match current_version(&root, config) {
        Ok(before) => Some(before.version),
        Err(error @ (ReadError::ConfigMissing(_) | ReadError::Folder { .. })) => return Err(error.into()),
        Err(_) => None,
    };
    read_content(&root, config, version, &Path::new(config.as_str()).join(version.as_str()))?;

    let folder = path.join(config.as_str());
    let target = folder.join(names::CURRENT);
    // The process ID separates two switches at the same time; names that begin with ".." are never read as versions.
    let draft = folder.join(format!("..current-{}", std::process::id()));
    // A process of the same ID that was killed may have left its draft.
    let _ = fs::remove_file(&draft);
    let is_file = fs::symlink_metadata(&target).is_ok_and(|meta| meta.is_file());
    let result = if is_file { fs::write(&draft, format!("{version}\n")) } else { symlink(version.as_str(), &draft) };
    if let Err(error) = result.and_then(|()| fs::rename(&draft, &target)) {
        // Only the first error matters.
        let _ = fs::remove_file(&draft);
        return Err(FileError::at(&target, FileError::UNWRITABLE)(error).into());
    }
    Ok(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for version in ["1", "2"] {
            fs::create_dir_all(folder.path().join("shop").join(version)).unwrap();
            fs::write(folder.path().join("shop").join(version).join("k"), version).unwrap();
        }
        folder
    }

    fn switch(folder: &tempfile::TempDir, version: &str) -> Result<Option<VersionName>, SwitchError> {
        switch_current(folder.path(), &ConfigName::new("shop").unwrap(), &VersionName::new(version).unwrap())
    }

    #[test]
    fn a_link_stays_a_link_and_a_file_stays_a_file() {
        let folder = folder();
        let current = folder.path().join("shop/current");
        assert_eq!(switch(&folder, "1").unwrap(), None);
        assert_eq!(switch(&folder, "2").unwrap().unwrap().as_str(), "1");
        assert_eq!(fs::read_link(&current).unwrap(), Path::new("2"));

        fs::remove_file(&current).unwrap();
        fs::write(&current, "1\n").unwrap();
        assert_eq!(switch(&folder, "2").unwrap().unwrap().as_str(), "1");
        assert_eq!(fs::read_to_string(&current).unwrap(), "2\n");
        assert!(!fs::symlink_metadata(&current).unwrap().is_symlink());
    }

    #[test]
    fn a_version_that_cannot_be_used_does_not_become_current() {
        let folder = folder();
        switch(&folder, "1").unwrap();
        assert!(switch(&folder, "3").unwrap_err().to_string().contains("there is no folder"));
        fs::create_dir(folder.path().join("shop/empty")).unwrap();
        assert!(switch(&folder, "empty").unwrap_err().to_string().contains("the folder is empty"));
        assert_eq!(fs::read_link(folder.path().join("shop/current")).unwrap(), Path::new("1"));
        let nothing = switch_current(folder.path(), &ConfigName::new("nope").unwrap(), &VersionName::new("1").unwrap());
        assert!(nothing.unwrap_err().to_string().contains("there is no folder"));
    }
}
