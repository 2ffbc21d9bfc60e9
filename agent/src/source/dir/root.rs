//! Access to a folder that never leaves it: links that lead out of the folder are not followed.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, ResolveFlags, Stat, fstatfs, openat, openat2, readlinkat, statat};
use rustix::io::Errno;

/// The reason why a file or folder below a [`Root`] can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A link in the path leads out of the folder.
    #[error("a symbolic link leads out of the folder")]
    Outside,
    /// The operating system refused.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl OpenError {
    /// Returns whether nothing exists at the path.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

/// An open folder; all paths given to its methods are relative to it.
#[derive(Debug)]
pub struct Root {
    path: PathBuf,
    folder: OwnedFd,
}

impl Root {
    /// Opens the folder; `path` itself may be a link.
    pub fn open(path: &Path) -> io::Result<Self> {
        let folder = openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { path: path.to_owned(), folder })
    }

    /// Returns whether the folder is in a file system that needs no server, by its number in statfs(2).
    pub fn is_local(&self) -> bool {
        const LOCAL_FILE_SYSTEMS: [u32; 7] = [
            0xef53,      // ext2, ext3, ext4
            0x5846_5342, // xfs
            0x9123_683e, // btrfs
            0xf2f5_2010, // f2fs
            0x0102_1994, // tmpfs
            0x8584_58f6, // ramfs
            0x794c_7630, // overlayfs
        ];
        fstatfs(&self.folder)
            .is_ok_and(|stat| u32::try_from(stat.f_type).is_ok_and(|kind| LOCAL_FILE_SYSTEMS.contains(&kind)))
    }

    /// Returns the folder's path as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file for reading. Never blocks: a FIFO opens at once, and the file's type shows that it is a FIFO.
    pub fn open_file(&self, path: &Path) -> Result<File, OpenError> {
        Ok(File::from(self.open_beneath(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?))
    }

    /// Returns the metadata of a file. Links are followed wherever they lead.
    pub fn stat(&self, path: &Path) -> io::Result<Stat> {
        Ok(statat(&self.folder, path, AtFlags::empty())?)
    }

    /// Returns the names in a folder, in no order, without `.` and `..`.
    pub fn list(&self, path: &Path) -> Result<Vec<OsString>, OpenError> {
        let folder = self.open_beneath(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(folder).map_err(io::Error::from)? {
            let entry = entry.map_err(io::Error::from)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name.to_vec()));
            }
        }
        Ok(names)
    }

    /// Returns the target of a symbolic link; `None` if `path` is something else.
    pub fn read_link(&self, path: &Path) -> Result<Option<PathBuf>, OpenError> {
        let folder = path.parent().unwrap_or(Path::new(""));
        let Some(name) = path.file_name() else { return Ok(None) };
        // The link itself is not followed, but its folder may be a link that leads out.
        let folder = self.open_beneath(folder, OFlags::RDONLY | OFlags::DIRECTORY)?;
        match readlinkat(&folder, name, Vec::new()) {
            Ok(target) => Ok(Some(OsString::from_vec(target.into_bytes()).into())),
            Err(Errno::INVAL) => Ok(None),
            Err(error) => Err(OpenError::Io(error.into())),
        }
    }

    fn open_beneath(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, OpenError> {
        let flags = flags | OFlags::CLOEXEC;
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        loop {
            return match openat2(&self.folder, path, flags, Mode::empty(), resolve) {
                Ok(fd) => Ok(fd),
                Err(Errno::XDEV) => Err(OpenError::Outside),
                // A folder was renamed meanwhile, so the kernel could not be sure (openat2(2)).
                Err(Errno::AGAIN | Errno::INTR) => continue,
                // The kernel is older than Linux 5.6, or a seccomp profile does not know the call.
                Err(Errno::NOSYS | Errno::PERM) => self.open_checked(path, flags),
                Err(error) => Err(OpenError::Io(error.into())),
            };
        }
    }

    /// Opens a file without openat2: resolves the path first. A link that is swapped in between is followed, which
    /// can't be prevented on such a kernel.
    fn open_checked(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, OpenError> {
        let folder = self.path.canonicalize()?;
        let resolved = self.path.join(path).canonicalize()?;
        if !resolved.starts_with(&folder) {
            return Err(OpenError::Outside);
        }
        Ok(openat(CWD, &resolved, flags, Mode::empty()).map_err(io::Error::from)?)
    }
}

/// Converts a name for messages: bytes that are not UTF-8 are escaped.
pub(super) fn displayable(name: &std::ffi::OsStr) -> String {
    name.to_str().map_or_else(|| name.as_bytes().escape_ascii().to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_inside_and_refused_when_they_lead_out() {
        let parent = tempfile::tempdir().unwrap();
        fs::write(parent.path().join("secret"), "x").unwrap();
        let folder = parent.path().join("root");
        fs::create_dir_all(folder.join("a")).unwrap();
        fs::write(folder.join("a/file"), "y").unwrap();
        symlink("a/file", folder.join("in")).unwrap();
        symlink("../secret", folder.join("out")).unwrap();
        symlink(parent.path().join("secret"), folder.join("absolute")).unwrap();

        let root = Root::open(&folder).unwrap();
        for open in
            [Root::open_file, |root: &Root, path: &Path| root.open_checked(path, OFlags::RDONLY).map(File::from)]
        {
            assert!(open(&root, Path::new("in")).is_ok());
            assert!(matches!(open(&root, Path::new("out")), Err(OpenError::Outside)));
            assert!(matches!(open(&root, Path::new("absolute")), Err(OpenError::Outside)));
            assert!(open(&root, Path::new("nothing")).unwrap_err().is_not_found());
        }
    }
}
