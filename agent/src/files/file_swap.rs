//! Files that are swapped in one step, for software that reads files and reloads on a signal.
//!
//! The layout and the order of writes are the kubelet's (`AtomicWriter` in kubernetes/pkg/volume/util, 1.36): the first
//! name of every path is a link into `..data`, which is a link to a folder with the time of its version in its name.
//! Replacing that one link changes all files at once.

use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tempfile::TempDir;
use time::OffsetDateTime;
use zeroize::Zeroizing;

use super::FileError;
use super::disk_room::Room;

const DATA_LINK: &str = "..data";
const DRAFT_LINK: &str = "..data_tmp";
const CANDIDATE_FOLDER: &str = "..next";

/// The reason why the files can't be written. Those of the version before stay complete.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    /// There is a file of the same name that Nudge has not made.
    #[error("{} is in the way and was not made by Nudge; move it, or choose another folder", .0.display())]
    InTheWay(PathBuf),
    /// The operating system refused.
    #[error(transparent)]
    File(#[from] FileError),
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> FileError {
    FileError::at(path, FileError::UNWRITABLE)
}

/// A file to write.
#[derive(Clone, PartialEq, Eq)]
pub struct File {
    /// The path within its folder.
    pub path: String,
    /// The bytes of the file.
    pub content: Bytes,
    /// The permission bits.
    pub mode: u32,
}

impl File {
    /// Returns the name that is seen in the folder.
    fn visible_name(&self) -> &str {
        visible_name(&self.path)
    }

    /// Returns whether a folder that something is mounted at hides the file.
    fn is_hidden(&self, mountpoints: &[String]) -> bool {
        mountpoints.iter().any(|mountpoint| visible_name(mountpoint) == self.visible_name())
    }
}

fn visible_name(path: &str) -> &str {
    path.split('/').next().unwrap_or_default()
}

/// Writes the files into `folder`, creates a folder there for each mount point, and makes the files visible together.
/// As with the kubelet, such a folder hides files of its name. Returns messages about old files that can't be removed;
/// the new files are in place nevertheless.
pub fn project(folder: &Path, files: &[File], mountpoints: &[String]) -> Result<Vec<String>, ProjectError> {
    fs::create_dir_all(folder).map_err(io_error(folder))?;
    for path in mountpoints.iter().map(|mountpoint| folder.join(mountpoint)) {
        fs::create_dir_all(&path).map_err(io_error(&path))?;
    }
    // Versions that a killed agent has left take room.
    let visible = fs::read_link(folder.join(DATA_LINK)).unwrap_or_default().into_os_string();
    let removal = remove_old_versions(folder, &visible);
    // There may be no room for the same files twice.
    if is_in_place(folder, files, mountpoints) {
        return Ok(error_messages([removal, remove_stale_links(folder)]));
    }
    let linked: Vec<&File> = files.iter().filter(|file| !file.is_hidden(mountpoints)).collect();
    for file in &linked {
        let path = folder.join(file.visible_name());
        if fs::symlink_metadata(&path).is_ok() && !is_own_link(&path) {
            return Err(ProjectError::InTheWay(path));
        }
    }

    let result = write_version(folder, files).and_then(|version| {
        let visible = swap(folder, version)?;
        link_files(folder, &linked)?;
        Ok(visible)
    });
    let visible = match result {
        Ok(visible) => visible,
        Err(error) => {
            // Only the first error matters.
            let _ = remove_stale_links(folder);
            return Err(error.into());
        }
    };
    Ok(error_messages([remove_stale_links(folder), remove_old_versions(folder, &visible)]))
}

fn error_messages(results: [io::Result<()>; 2]) -> Vec<String> {
    results.into_iter().filter_map(Result::err).map(|error| error.to_string()).collect()
}

/// Returns whether the visible files are these already.
pub fn is_in_place(folder: &Path, files: &[File], mountpoints: &[String]) -> bool {
    let is_same = |file: &File| {
        let path = folder.join(DATA_LINK).join(&file.path);
        (is_own_link(&folder.join(file.visible_name())) || file.is_hidden(mountpoints))
            && fs::metadata(&path).is_ok_and(|metadata| metadata.mode() & 0o777 == file.mode)
            && fs::read(&path).is_ok_and(|present| *Zeroizing::new(present) == *file.content)
    };
    count_files(&folder.join(DATA_LINK)) == Some(files.len()) && files.iter().all(is_same)
}

/// Counts the files in a folder and below; `None` if the folder can't be read.
fn count_files(folder: &Path) -> Option<usize> {
    fs::read_dir(folder).ok()?.flatten().try_fold(0, |count, entry| {
        Some(count + if entry.file_type().is_ok_and(|kind| kind.is_dir()) { count_files(&entry.path())? } else { 1 })
    })
}

/// Returns whether a folder of this name holds a version.
fn is_version(name: &[u8]) -> bool {
    name.strip_prefix(b"..").and_then(|rest| rest.first()).is_some_and(u8::is_ascii_digit)
}

/// Returns the room for the files of a version besides the current files; `None` if it is not known.
pub(super) fn room(folder: &Path) -> Option<Room> {
    let visible = fs::read_link(folder.join(DATA_LINK)).unwrap_or_default().into_os_string();
    let is_old = |name: &[u8]| name == CANDIDATE_FOLDER.as_bytes() || is_version(name) && name != visible.as_bytes();
    Room::in_folder(folder, is_old)
}

/// The files of a dictionary that is not served yet, in a folder of their own, next to the folders of served files.
/// They are removed on drop.
#[derive(Debug)]
pub struct CandidateFiles {
    path: PathBuf,
    inode: u64,
}

impl CandidateFiles {
    /// Writes the files into the folder `..next` within `folder`, which appears whole.
    pub fn write(folder: &Path, files: &[File]) -> Result<Self, FileError> {
        fs::create_dir_all(folder).map_err(io_error(folder))?;
        let version = write_version(folder, files)?;
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
fn write_version(folder: &Path, files: &[File]) -> Result<TempDir, FileError> {
    let now = OffsetDateTime::now_utc();
    let (year, month, day) = now.to_calendar_date();
    let (hour, minute, second) = now.to_hms();
    let prefix = format!("..{year:04}_{:02}_{day:02}_{hour:02}_{minute:02}_{second:02}.", u8::from(month));
    let mut draft = tempfile::Builder::new();
    draft.prefix(&prefix).permissions(Permissions::from_mode(0o755));
    let version = draft.tempdir_in(folder).map_err(io_error(folder))?;
    for File { path, content, mode } in files {
        let path = version.path().join(path);
        if let Some(parent) = path.parent().filter(|parent| *parent != version.path()) {
            fs::create_dir_all(parent).map_err(io_error(parent))?;
        }
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(io_error(&path))?;
        file.write_all(content).map_err(io_error(&path))?;
        // Whatever the umask is.
        file.set_permissions(Permissions::from_mode(*mode)).map_err(io_error(&path))?;
    }
    Ok(version)
}

/// Points `..data` to the version and returns its name.
fn swap(folder: &Path, version: TempDir) -> Result<OsString, FileError> {
    let name = version.path().file_name().unwrap_or_default().to_owned();
    let (draft, data) = (folder.join(DRAFT_LINK), folder.join(DATA_LINK));
    let _ = fs::remove_file(&draft);
    symlink(&name, &draft).map_err(io_error(&draft))?;
    fs::rename(&draft, &data).map_err(io_error(&data))?;
    let _ = version.keep();
    Ok(name)
}

fn link_files(folder: &Path, files: &[&File]) -> Result<(), FileError> {
    for file in files {
        let path = folder.join(file.visible_name());
        match symlink(Path::new(DATA_LINK).join(file.visible_name()), &path) {
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

/// Removes version folders other than the visible one, including those of earlier processes.
fn remove_old_versions(folder: &Path, visible: &OsStr) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != visible && is_version(name.as_bytes()) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(pairs: &[(&str, &[u8])]) -> Vec<File> {
        let file = |(path, content): &(&str, &[u8])| File {
            path: (*path).to_owned(),
            content: Bytes::copy_from_slice(content),
            mode: 0o644,
        };
        pairs.iter().map(file).collect()
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
        project(&folder, &files(&[("a", b"1"), ("old", &[0xff])]), &[]).unwrap();
        assert_eq!(fs::read(folder.join("old")).unwrap(), [0xff]);
        project(&folder, &files(&[("a", b"2"), ("new", b"n")]), &[]).unwrap();
        assert_eq!(fs::read(folder.join("a")).unwrap(), b"2");
        assert_eq!(names(&folder)[1], "..data");
        let version = &names(&folder)[0];
        assert!(is_version(version.as_bytes()) && version.len() == "..2026_11_27_22_40_00.123456".len(), "{version}");
        assert_eq!(names(&folder)[2..], ["a", "new"]);
        assert_eq!(fs::read_link(folder.join("a")).unwrap(), Path::new("..data/a"));
    }

    #[test]
    fn files_that_are_in_place_are_not_written_again_and_others_are() {
        let folder = tempfile::tempdir().unwrap();
        let first = files(&[("a", b"1"), ("b", b"2")]);
        assert!(!is_in_place(folder.path(), &first, &[]));
        project(folder.path(), &first, &[]).unwrap();
        let visible = fs::read_link(folder.path().join("..data")).unwrap();
        assert!(is_in_place(folder.path(), &first, &[]));
        project(folder.path(), &first, &[]).unwrap();
        assert_eq!(fs::read_link(folder.path().join("..data")).unwrap(), visible);
        for other in [&[("a", &b"1"[..]), ("b", b"3")][..], &[("a", b"1")], &[("a", b"1"), ("b", b"2"), ("c", b"3")]] {
            assert!(!is_in_place(folder.path(), &files(other), &[]), "{other:?}");
        }
        // A user has removed a link.
        fs::remove_file(folder.path().join("b")).unwrap();
        assert!(!is_in_place(folder.path(), &first, &[]));
        project(folder.path(), &first, &[]).unwrap();
        assert_eq!(fs::read(folder.path().join("b")).unwrap(), b"2");
    }

    #[test]
    fn a_candidate_stands_beside_the_others_until_it_goes() {
        let folder = tempfile::tempdir().unwrap();
        project(folder.path(), &files(&[("a", b"1")]), &[]).unwrap();
        let next = folder.path().join("..next");
        let first = CandidateFiles::write(folder.path(), &files(&[("a", b"2")])).unwrap();
        assert_eq!(fs::read(next.join("a")).unwrap(), b"2");
        assert_eq!(fs::metadata(&next).unwrap().permissions().mode() & 0o777, 0o755);
        project(folder.path(), &files(&[("a", b"3")]), &[]).unwrap();
        assert_eq!(fs::read(next.join("a")).unwrap(), b"2", "files that are written meanwhile leave it");
        let second = CandidateFiles::write(folder.path(), &files(&[("a", b"4")])).unwrap();
        drop(first);
        assert_eq!(fs::read(next.join("a")).unwrap(), b"4", "only its own files go");
        drop(second);
        assert!(!next.exists() && fs::read(folder.path().join("a")).unwrap() == b"3");
        std::mem::forget(CandidateFiles::write(folder.path(), &files(&[("a", b"5")])).unwrap());
        CandidateFiles::remove_old(folder.path());
        CandidateFiles::remove_old(folder.path());
        assert!(!names(folder.path()).iter().any(|name| name == "..next"));
    }

    #[test]
    fn a_file_that_is_not_nudges_is_never_touched() {
        let folder = tempfile::tempdir().unwrap();
        project(folder.path(), &files(&[("a", b"1")]), &[]).unwrap();
        fs::write(folder.path().join("mine"), "m").unwrap();
        let error = project(folder.path(), &files(&[("a", b"2"), ("mine", b"x")]), &[]).unwrap_err();
        assert!(error.to_string().contains("mine is in the way"), "{error}");
        assert_eq!(fs::read(folder.path().join("mine")).unwrap(), b"m");
        assert_eq!(fs::read(folder.path().join("a")).unwrap(), b"1");
        project(folder.path(), &files(&[("a", b"3")]), &[]).unwrap();
        assert_eq!(fs::read(folder.path().join("mine")).unwrap(), b"m");
    }

    #[test]
    fn files_in_folders_have_their_modes_and_go_with_their_version() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("files");
        let mut first = files(&[("conf.d/app", b"1"), ("conf.d/sub/more", b"2"), ("top", b"3")]);
        first[0].mode = 0o400;
        let mountpoints = ["cache/deep".to_owned()];
        project(&folder, &first, &mountpoints).unwrap();
        assert_eq!(fs::read_link(folder.join("conf.d")).unwrap(), Path::new("..data/conf.d"));
        let mode = |path: &str| fs::metadata(folder.join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("conf.d/app"), mode("conf.d/sub/more"), mode("conf.d")), (0o400, 0o644, 0o755));
        assert!(is_in_place(&folder, &first, &[]));
        first[0].mode = 0o440;
        assert!(!is_in_place(&folder, &first, &[]), "another mode is a change");
        project(&folder, &files(&[("top", b"3")]), &[]).unwrap();
        assert_eq!(names(&folder)[1..], ["..data", "cache", "top"]);
        assert!(folder.join("cache/deep").is_dir());
        // As with the kubelet, the folder hides a file of its name.
        let hidden = files(&[("cache", b"x"), ("top", b"4")]);
        project(&folder, &hidden, &mountpoints).unwrap();
        assert!(folder.join("cache/deep").is_dir() && fs::read(folder.join("top")).unwrap() == b"4");
        assert!(is_in_place(&folder, &hidden, &mountpoints));
        let error = project(&folder, &hidden, &[]).unwrap_err();
        assert!(error.to_string().contains("cache is in the way"), "{error}");
    }
}
