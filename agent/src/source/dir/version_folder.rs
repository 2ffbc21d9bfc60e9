//! Reads the folder of one version, completely or not at all.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nudge_protocol::limits::{MAX_DICTIONARY_BYTES, MAX_KEYS, MAX_VALUE_BYTES};
use nudge_protocol::{Key, NameError};
use rustix::fs::{FileType, Stat, fstat};
use zeroize::Zeroizing;

use super::current_version::is_checkout;
use super::root::{OpenError, Root, displayable};
use crate::content::Value;

/// The maximum number of faults that are collected for one version.
const MAX_FAULTS: usize = 20;

/// A fault of a version or of one of its files.
#[derive(Debug, thiserror::Error)]
pub enum KeyFault {
    /// The file's name can't be a key.
    #[error("{0}")]
    Name(#[from] NameError),
    /// The entry is not a file.
    #[error("{key} is {kind}; every key must be a file")]
    NotAFile {
        /// The file's name.
        key: String,
        /// The type of the entry.
        kind: &'static str,
    },
    /// The entry is a link that leads out of the folder given by `--dir`.
    #[error("{0} is a link that leads out of the folder; copy the file instead")]
    Outside(String),
    /// The value is over its size limit.
    #[error("{0} has more than {MAX_VALUE_BYTES} bytes, and a value must not have more")]
    TooLarge(String),
    /// The values together are over the size limit.
    #[error("the values have more than {MAX_DICTIONARY_BYTES} bytes together, and a dictionary must not have more")]
    AllTooLarge,
    /// There are too many keys.
    #[error("there are {0} files, and at most {MAX_KEYS} keys are allowed")]
    TooMany(usize),
    /// The operating system refused to read the file.
    #[error("{key} can't be read: {source}")]
    Io {
        /// The file's name.
        key: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The folder changed while it was read.
    #[error("files are being written; the agent reads them again after that")]
    Changing,
    /// The version's folder does not exist.
    #[error("there is no such folder")]
    NoFolder,
    /// There is no key at all.
    #[error("the folder is empty; a version has at least one key")]
    Empty,
}

/// The identity, size and times of a file. The stamp changes whenever the content may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    name: OsString,
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, u64),
    changed: (i64, u64),
}

impl Stamp {
    fn new(name: &OsStr, stat: &Stat) -> Self {
        Self {
            name: name.to_owned(),
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

/// The stamps of all files of a version: equal stamps mean that nothing needs to be read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint(Vec<Stamp>);

impl Fingerprint {
    /// Returns the time between the last change of a file and `now`, even if that change is in the future: a clock that
    /// was set back must not make files young for hours.
    pub fn age(&self, now: SystemTime) -> Duration {
        let time = |(seconds, nanos): (i64, u64)| {
            let seconds = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
            UNIX_EPOCH + seconds + Duration::from_nanos(nanos)
        };
        let newest = self.0.iter().map(|stamp| time(stamp.changed)).max();
        newest.map_or(Duration::MAX, |newest| now.duration_since(newest).unwrap_or_else(|error| error.duration()))
    }
}

/// Returns whether the name of a file shows that it is not a key: the kubelet's own links begin with `..`, and editors
/// leave `x~`, `.x.swp`, `.#x` and `#x#`.
pub fn is_ignored(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let is_swap =
        || name.starts_with(b".") && [&b".swp"[..], b".swo", b".swx"].iter().any(|suffix| name.ends_with(suffix));
    let is_lock = || name.starts_with(b".#") || (name.starts_with(b"#") && name.ends_with(b"#"));
    name.starts_with(b"..") || name.ends_with(b"~") || is_swap() || is_lock()
}

/// Returns the names of a version's files, sorted.
pub(super) fn list_keys(root: &Root, folder: &Path) -> Result<Vec<OsString>, OpenError> {
    let mut names = root.list(folder)?;
    // Git marks a worktree by this file.
    let is_git_mark = |name: &OsString| is_checkout(folder) && name == ".git";
    names.retain(|name| !is_ignored(name) && !is_git_mark(name));
    names.sort_unstable();
    Ok(names)
}

/// Returns the stamps of a version's files; `None` if one of them is missing. No file is opened, so links that lead out
/// of the folder are followed: stamps only show whether the files have changed since they were read.
pub(super) fn fingerprint(root: &Root, folder: &Path) -> Option<Fingerprint> {
    let stamp = |name: &OsString| Some(Stamp::new(name, &root.stat(&folder.join(name)).ok()?));
    list_keys(root, folder).ok()?.iter().map(stamp).collect::<Option<Vec<_>>>().map(Fingerprint)
}

/// Reads every key of the version in `folder` (relative to `root`), or collects its faults (at most 20). A file that
/// changes during the read is a fault, so that a half-written version is never served.
pub fn read_version(root: &Root, folder: &Path) -> Result<(BTreeMap<Key, Value>, Fingerprint), Vec<KeyFault>> {
    let folder_fault = |error: OpenError| {
        let key = folder.display().to_string();
        vec![match error {
            _ if error.is_not_found() => KeyFault::NoFolder,
            OpenError::Outside => KeyFault::Outside(key),
            OpenError::Io(source) => KeyFault::Io { key, source },
        }]
    };
    let names = list_keys(root, folder).map_err(folder_fault)?;
    if names.is_empty() {
        return Err(vec![KeyFault::Empty]);
    }
    if names.len() > MAX_KEYS {
        return Err(vec![KeyFault::TooMany(names.len())]);
    }

    let mut values = BTreeMap::new();
    let mut stamps = Vec::with_capacity(names.len());
    let mut faults = Vec::new();
    let mut left = MAX_DICTIONARY_BYTES;
    for name in &names {
        match read_key(root, folder, name) {
            Ok((key, value, stamp)) => {
                let Some(remaining_bytes) = left.checked_sub(value.as_bytes().len()) else {
                    faults.push(KeyFault::AllTooLarge);
                    break;
                };
                left = remaining_bytes;
                values.insert(key, value);
                stamps.push(stamp);
            }
            Err(fault) => faults.push(fault),
        }
        if faults.len() >= MAX_FAULTS {
            break;
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let stamps = Fingerprint(stamps);
    if fingerprint(root, folder).as_ref() != Some(&stamps) {
        return Err(vec![KeyFault::Changing]);
    }
    Ok((values, stamps))
}

fn read_key(root: &Root, folder: &Path, name: &OsStr) -> Result<(Key, Value, Stamp), KeyFault> {
    let key = Key::new(&displayable(name))?;
    let text = || key.to_string();
    let file = match root.open_file(&folder.join(name)) {
        Ok(file) => file,
        Err(OpenError::Outside) => return Err(KeyFault::Outside(text())),
        // A socket can't be opened at all (open(2), ENXIO).
        Err(OpenError::Io(error)) if error.raw_os_error() == Some(libc::ENXIO) => {
            return Err(KeyFault::NotAFile { key: text(), kind: "a socket or device" });
        }
        Err(OpenError::Io(source)) => return Err(KeyFault::Io { key: text(), source }),
    };
    let io = |source| KeyFault::Io { key: text(), source };
    let stat = fstat(&file).map_err(|error| io(error.into()))?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind != FileType::RegularFile {
        return Err(KeyFault::NotAFile { key: text(), kind: kind_name(kind) });
    }
    let size = usize::try_from(stat.st_size).unwrap_or(usize::MAX);
    if size > MAX_VALUE_BYTES {
        return Err(KeyFault::TooLarge(text()));
    }
    let value = read_exactly(&file, size).map_err(io)?;
    Ok((key, Value::new(value), Stamp::new(name, &stat)))
}

/// Reads as many bytes as the file had a moment ago into a buffer that never grows, so that no copy of the value stays
/// in memory. The stamp shows whether the file has changed since.
fn read_exactly(mut file: &File, size: usize) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(vec![0; size]);
    let mut filled = 0;
    while filled < size {
        match file.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => "a folder",
        FileType::Fifo => "a FIFO",
        _ => "a socket or device",
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn version() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("v")).unwrap();
        let root = Root::open(folder.path()).unwrap();
        (folder, root)
    }

    fn read(root: &Root) -> Result<BTreeMap<Key, Value>, String> {
        let joined = |faults: Vec<KeyFault>| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        read_version(root, Path::new("v")).map(|(values, _)| values).map_err(joined)
    }

    #[test]
    fn every_file_is_a_key_and_leftovers_of_editors_are_not() {
        let (folder, root) = version();
        let at = |name: &str| folder.path().join("v").join(name);
        for name in ["a", "b~", ".c.swp", ".#d", "#e#", "..data", ".env"] {
            fs::write(at(name), name).unwrap();
        }
        let values = read(&root).unwrap();
        assert_eq!(values.keys().map(Key::as_str).collect::<Vec<_>>(), [".env", "a"]);
    }

    #[test]
    fn all_faults_are_reported_together() {
        let (folder, root) = version();
        let at = |name: &[u8]| folder.path().join("v").join(OsStr::from_bytes(name));
        fs::create_dir(at(b"folder")).unwrap();
        nix::unistd::mkfifo(&at(b"fifo"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        symlink("/etc/hostname", at(b"out")).unwrap();
        symlink("nothing", at(b"dangling")).unwrap();
        fs::write(at(b"odd\xff"), "").unwrap();
        fs::write(at(b"nudge.mine"), "").unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at(b"socket")).unwrap();
        let message = read(&root).unwrap_err();
        for part in [
            "folder is a folder",
            "fifo is a FIFO",
            "out is a link",
            "dangling can't be read",
            "odd",
            "nudge.mine",
            "socket is a socket",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }

    #[test]
    fn a_value_of_the_largest_size_is_taken_and_one_byte_more_is_not() {
        let (folder, root) = version();
        let at = folder.path().join("v/a");
        fs::write(&at, "").unwrap();
        assert_eq!(read(&root).unwrap().values().next().unwrap().as_bytes(), b"");
        fs::write(&at, vec![0; MAX_VALUE_BYTES]).unwrap();
        assert!(read(&root).is_ok());
        fs::write(&at, vec![0; MAX_VALUE_BYTES + 1]).unwrap();
        assert!(read(&root).unwrap_err().contains("more than 1048576 bytes"));
    }

    #[test]
    fn the_sum_and_the_number_of_keys_are_bounded() {
        let (folder, root) = version();
        for n in 0..5 {
            fs::write(folder.path().join(format!("v/k{n}")), vec![b'x'; MAX_VALUE_BYTES]).unwrap();
        }
        assert!(read(&root).unwrap_err().contains("together"));
        fs::remove_dir_all(folder.path().join("v")).unwrap();
        fs::create_dir(folder.path().join("v")).unwrap();
        assert!(read(&root).unwrap_err().contains("empty"));
        for n in 0..=MAX_KEYS {
            fs::write(folder.path().join(format!("v/k{n}")), "").unwrap();
        }
        assert!(read(&root).unwrap_err().contains("8193 files"));
    }

    #[test]
    fn the_fingerprint_changes_with_the_content() {
        let (folder, root) = version();
        let at = folder.path().join("v/a");
        fs::write(&at, "1").unwrap();
        let (_, before) = read_version(&root, Path::new("v")).unwrap();
        assert_eq!(fingerprint(&root, Path::new("v")), Some(before.clone()));
        fs::write(&at, "22").unwrap();
        assert_ne!(fingerprint(&root, Path::new("v")), Some(before));
    }
}
