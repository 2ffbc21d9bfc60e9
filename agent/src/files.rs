//! The dictionary's values as files, swapped in one step, for software that reads files and reloads on a signal.
//!
//! The layout is the kubelet's (`AtomicWriter` in kubernetes/pkg/volume/util): every key is a link to `..data/<key>`,
//! and `..data` is a link to a folder that holds one version. Replacing that one link changes all files at once.

use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nudge_protocol::reserved;
use tempfile::TempDir;
use zeroize::Zeroizing;

use crate::content::{Dictionary, Entry};
use crate::disk_room::Room;

const DATA_LINK: &str = "..data";
const DRAFT_LINK: &str = "..data_tmp";
const VERSION_PREFIX: &str = "..nudge-";
const CANDIDATE_FOLDER: &str = "..next";

/// The reason why the files can't be written. Those of the version before stay complete.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    /// There is a file of the same name that Nudge has not made.
    #[error("{} is in the way and was not made by Nudge; move it, or choose another folder", path.display())]
    InTheWay {
        /// The file.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("{} can't be written: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> ProjectError {
    let path = path.to_owned();
    move |source| ProjectError::Io { path, source }
}

/// Writes the values into `folder` and makes them visible together. Returns messages about old files that can't be
/// removed; the new files are in place nevertheless.
pub fn project(folder: &Path, dictionary: &Dictionary) -> Result<Vec<String>, ProjectError> {
    fs::create_dir_all(folder).map_err(io_error(folder))?;
    let entries = file_entries(dictionary);
    // Versions that a killed agent has left take room.
    let visible = fs::read_link(folder.join(DATA_LINK)).unwrap_or_default().into_os_string();
    let removal = remove_old_versions(folder, &visible);
    // There may be no room for the same files twice.
    if is_in_place(folder, dictionary) {
        return Ok(error_messages([removal, remove_stale_links(folder)]));
    }
    for entry in &entries {
        let path = folder.join(entry.key());
        if fs::symlink_metadata(&path).is_ok() && !is_own_link(&path) {
            return Err(ProjectError::InTheWay { path });
        }
    }

    let result = write_version(folder, &entries, dictionary).and_then(|version| {
        // Links for new keys come before the swap: until then they point to nothing, as in the kubelet's volumes.
        link_keys(folder, &entries)?;
        swap(folder, version)
    });
    let visible = match result {
        Ok(visible) => visible,
        Err(error) => {
            // Only the first error matters.
            let _ = remove_stale_links(folder);
            return Err(error);
        }
    };
    Ok(error_messages([remove_stale_links(folder), remove_old_versions(folder, &visible)]))
}

fn error_messages(results: [io::Result<()>; 2]) -> Vec<String> {
    results.into_iter().filter_map(Result::err).map(|error| error.to_string()).collect()
}

/// Returns the entries that are files. `nudge.binary` matters only in JSON: files hold the raw bytes.
fn file_entries(dictionary: &Dictionary) -> Vec<&Entry> {
    dictionary.entries().iter().filter(|entry| entry.key() != reserved::BINARY).collect()
}

/// Returns whether the visible files are those of the dictionary already.
pub fn is_in_place(folder: &Path, dictionary: &Dictionary) -> bool {
    let entries = file_entries(dictionary);
    let holds = |entry: &Entry| {
        let path = folder.join(entry.key());
        is_own_link(&path) && fs::read(&path).is_ok_and(|bytes| *Zeroizing::new(bytes) == *dictionary.raw(entry))
    };
    // The list of configs differs between most versions, so it is compared first.
    let configs = entries.iter().find(|entry| entry.key() == reserved::CONFIGS);
    let count = fs::read_dir(folder.join(DATA_LINK)).map_or(0, Iterator::count);
    count == entries.len() && configs.is_some_and(|entry| holds(entry)) && entries.iter().all(|entry| holds(entry))
}

/// Returns the room for the files of a version besides the current files; `None` if it is not known.
pub fn room(folder: &Path) -> Option<Room> {
    let visible = fs::read_link(folder.join(DATA_LINK)).unwrap_or_default().into_os_string();
    let is_old = |name: &[u8]| {
        name == CANDIDATE_FOLDER.as_bytes() || name.starts_with(VERSION_PREFIX.as_bytes()) && name != visible.as_bytes()
    };
    Room::in_folder(folder, is_old)
}

/// The files of a dictionary that is not served yet, in a folder of their own beside the others. They are removed on
/// drop.
#[derive(Debug)]
pub struct CandidateFiles {
    path: PathBuf,
    inode: u64,
}

impl CandidateFiles {
    /// Writes the values into the folder `..next` within `folder`, which appears whole.
    pub fn write(folder: &Path, dictionary: &Dictionary) -> Result<Self, ProjectError> {
        fs::create_dir_all(folder).map_err(io_error(folder))?;
        let version = write_version(folder, &file_entries(dictionary), dictionary)?;
        let inode = fs::symlink_metadata(version.path()).map_err(io_error(version.path()))?.ino();
        let path = folder.join(CANDIDATE_FOLDER);
        Self::remove_old(folder);
        fs::rename(version.path(), &path).map_err(io_error(&path))?;
        let _ = version.keep();
        Ok(Self { path, inode })
    }

    /// Removes the files that a killed agent has left.
    pub fn remove_old(folder: &Path) {
        match fs::remove_dir_all(folder.join(CANDIDATE_FOLDER)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(folder = %folder.display(), %error, "old files not removed");
            }
            _ => {}
        }
    }
}

impl Drop for CandidateFiles {
    fn drop(&mut self) {
        // Another candidate may have taken the place.
        if fs::symlink_metadata(&self.path).is_ok_and(|metadata| metadata.ino() == self.inode)
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            tracing::warn!(folder = %self.path.display(), %error, "old files not removed");
        }
    }
}

/// Writes a version into a folder of its own, which is removed with the handle.
fn write_version(folder: &Path, entries: &[&Entry], dictionary: &Dictionary) -> Result<TempDir, ProjectError> {
    let mut draft = tempfile::Builder::new();
    draft.prefix(VERSION_PREFIX).permissions(Permissions::from_mode(0o755));
    let version = draft.tempdir_in(folder).map_err(io_error(folder))?;
    for entry in entries {
        let path = version.path().join(entry.key());
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path).map_err(io_error(&path))?;
        file.write_all(&dictionary.raw(entry)).map_err(io_error(&path))?;
    }
    Ok(version)
}

/// Points `..data` to the version and returns its name.
fn swap(folder: &Path, version: TempDir) -> Result<OsString, ProjectError> {
    let name = version.path().file_name().unwrap_or_default().to_owned();
    let (draft, data) = (folder.join(DRAFT_LINK), folder.join(DATA_LINK));
    let _ = fs::remove_file(&draft);
    symlink(&name, &draft).map_err(io_error(&draft))?;
    fs::rename(&draft, &data).map_err(io_error(&data))?;
    let _ = version.keep();
    Ok(name)
}

fn link_keys(folder: &Path, entries: &[&Entry]) -> Result<(), ProjectError> {
    for entry in entries {
        let path = folder.join(entry.key());
        match symlink(Path::new(DATA_LINK).join(entry.key()), &path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(io_error(&path)(error)),
            _ => {}
        }
    }
    Ok(())
}

/// Returns whether `path` is a link into `..data`.
fn is_own_link(path: &Path) -> bool {
    fs::read_link(path).is_ok_and(|target| target.starts_with(DATA_LINK))
}

/// Removes Nudge's links to keys that the visible version does not have.
fn remove_stale_links(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if is_own_link(&path) && fs::metadata(&path).is_err() {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Removes version folders other than the visible one, also those of earlier processes.
fn remove_old_versions(folder: &Path, visible: &OsStr) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != visible && name.as_bytes().starts_with(VERSION_PREFIX.as_bytes()) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use nudge_protocol::{ConfigName, Key, VersionName};

    use super::*;
    use crate::content::{EtagKey, Value, VersionContent};

    fn dictionary(pairs: &[(&str, &[u8])]) -> Dictionary {
        let values: BTreeMap<Key, Value> =
            pairs.iter().map(|(key, value)| (Key::new(key).unwrap(), Value::from(*value))).collect();
        let version = VersionName::new("1").unwrap();
        let content = VersionContent::new(ConfigName::new("c").unwrap(), version, values);
        Dictionary::merge(&[Arc::new(content)], &EtagKey::new(b"")).unwrap()
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn keys_are_added_and_removed_and_values_change_together() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("files");
        project(&folder, &dictionary(&[("a", b"1"), ("old", &[0xff])])).unwrap();
        assert_eq!(fs::read(folder.join("old")).unwrap(), [0xff]);
        project(&folder, &dictionary(&[("a", b"2"), ("new", b"n")])).unwrap();
        assert_eq!(fs::read(folder.join("a")).unwrap(), b"2");
        assert_eq!(fs::read(folder.join("nudge.configs")).unwrap(), b"c=1");
        assert_eq!(names(&folder)[0], "..data");
        assert!(names(&folder)[1].starts_with(VERSION_PREFIX));
        assert_eq!(names(&folder)[2..], ["a", "new", "nudge.config.c.version", "nudge.configs"]);
        assert_eq!(fs::read_link(folder.join("a")).unwrap(), Path::new("..data/a"));
    }

    #[test]
    fn files_that_are_in_place_are_not_written_again_and_others_are() {
        let folder = tempfile::tempdir().unwrap();
        let first = dictionary(&[("a", b"1"), ("b", b"2")]);
        assert!(!is_in_place(folder.path(), &first));
        project(folder.path(), &first).unwrap();
        let visible = fs::read_link(folder.path().join("..data")).unwrap();
        assert!(is_in_place(folder.path(), &first));
        project(folder.path(), &first).unwrap();
        assert_eq!(fs::read_link(folder.path().join("..data")).unwrap(), visible);
        for other in [&[("a", &b"1"[..]), ("b", b"3")][..], &[("a", b"1")], &[("a", b"1"), ("b", b"2"), ("c", b"3")]] {
            assert!(!is_in_place(folder.path(), &dictionary(other)), "{other:?}");
        }
        // A user has removed a link.
        fs::remove_file(folder.path().join("b")).unwrap();
        assert!(!is_in_place(folder.path(), &first));
        project(folder.path(), &first).unwrap();
        assert_eq!(fs::read(folder.path().join("b")).unwrap(), b"2");
    }

    #[test]
    fn a_candidate_stands_beside_the_others_until_it_goes() {
        let folder = tempfile::tempdir().unwrap();
        project(folder.path(), &dictionary(&[("a", b"1")])).unwrap();
        let next = folder.path().join("..next");
        let first = CandidateFiles::write(folder.path(), &dictionary(&[("a", b"2")])).unwrap();
        assert_eq!(fs::read(next.join("a")).unwrap(), b"2");
        assert_eq!(fs::metadata(&next).unwrap().permissions().mode() & 0o777, 0o755);
        project(folder.path(), &dictionary(&[("a", b"3")])).unwrap();
        assert_eq!(fs::read(next.join("a")).unwrap(), b"2", "files that are written meanwhile leave it");
        let second = CandidateFiles::write(folder.path(), &dictionary(&[("a", b"4")])).unwrap();
        drop(first);
        assert_eq!(fs::read(next.join("a")).unwrap(), b"4", "only its own files go");
        drop(second);
        assert!(!next.exists() && fs::read(folder.path().join("a")).unwrap() == b"3");
        std::mem::forget(CandidateFiles::write(folder.path(), &dictionary(&[("a", b"5")])).unwrap());
        CandidateFiles::remove_old(folder.path());
        CandidateFiles::remove_old(folder.path());
        assert!(!names(folder.path()).iter().any(|name| name == "..next"));
    }

    #[test]
    fn a_file_that_is_not_nudges_is_never_touched() {
        let folder = tempfile::tempdir().unwrap();
        project(folder.path(), &dictionary(&[("a", b"1")])).unwrap();
        fs::write(folder.path().join("mine"), "m").unwrap();
        let error = project(folder.path(), &dictionary(&[("a", b"2"), ("mine", b"x")])).unwrap_err();
        assert!(error.to_string().contains("mine is in the way"), "{error}");
        assert_eq!(fs::read(folder.path().join("mine")).unwrap(), b"m");
        assert_eq!(fs::read(folder.path().join("a")).unwrap(), b"1");
        project(folder.path(), &dictionary(&[("a", b"3")])).unwrap();
        assert_eq!(fs::read(folder.path().join("mine")).unwrap(), b"m");
    }
}
