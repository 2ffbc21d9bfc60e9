//! Checks whether the files of a version fit into the file system of their folder, before the pod switches to the
//! version. The check refuses no files that would fit; files that do not fit in spite of it are refused by the
//! operating system.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nudge_protocol::plural::counted;
use rustix::fs::statvfs;

/// The room that a file system has besides the current files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// The size of a block, in bytes; of a page, in memory.
    block: u64,
    /// The number of free blocks; `None` if the file system does not report it.
    blocks: Option<u64>,
    /// The number of files that can be created; `None` if there is no bound.
    files: Option<u64>,
    /// The names in the folder. Keys that are among them have links already.
    names: BTreeSet<OsString>,
}

/// The reason why files do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// The files are too large.
    #[error(
        "its files need {needed} KiB, and {free} KiB are free beside the current files; put several settings into one key, or make values smaller"
    )]
    Size {
        /// The size of the files, in KiB of whole blocks.
        needed: u64,
        /// The free size, in KiB.
        free: u64,
    },
    /// There are too many files.
    #[error(
        "it has {} with links, and {free} can be made beside the current files; put several settings into one key",
        counted(*.needed, "file")
    )]
    Number {
        /// The number of files that must be created.
        needed: u64,
        /// The number of files that can be created.
        free: u64,
    },
}

impl Room {
    /// Returns the room in a folder; `None` if it is not known. Folders whose names are `is_old` count as free.
    pub fn in_folder(folder: &Path, is_old: impl Fn(&[u8]) -> bool) -> Option<Self> {
        let system = statvfs(folder).ok()?;
        let block = system.f_frsize.max(1);
        let (old_bytes, old_files) = usage(folder, is_old);
        Some(Self {
            block,
            blocks: (system.f_blocks > 0).then(|| system.f_bavail.saturating_add(old_bytes / block)),
            files: (system.f_files > 0).then(|| system.f_favail.saturating_add(old_files)),
            names: fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect(),
        })
    }

    /// Checks whether files of these sizes, by their keys, fit with the folder that holds them and their links.
    pub fn check(&self, files: &BTreeMap<String, usize>) -> Result<(), NoRoom> {
        let sizes = files.values().map(|size| (*size as u64).div_ceil(self.block));
        let blocks = sizes.fold(0u64, u64::saturating_add);
        let links = files.keys().filter(|key| !self.names.contains(OsStr::new(key.as_str()))).count();
        // The folder counts, too, and so does the link that swaps all files.
        let files = files.len() as u64 + links as u64 + 2;
        let kib = |blocks: u64| blocks.saturating_mul(self.block) / 1024;
        if let Some(free) = self.blocks.filter(|free| *free < blocks) {
            return Err(NoRoom::Size { needed: kib(blocks), free: kib(free) });
        }
        if let Some(free) = self.files.filter(|free| *free < files) {
            return Err(NoRoom::Number { needed: files, free });
        }
        Ok(())
    }
}

/// Returns the bytes and the number of the files in the folders within `folder` whose names count.
fn usage(folder: &Path, counts: impl Fn(&[u8]) -> bool) -> (u64, u64) {
    let folders = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = folders.filter(|entry| counts(entry.file_name().as_encoded_bytes()));
    let files = folders.flat_map(|entry| fs::read_dir(entry.path()).into_iter().flatten().flatten());
    // stat(2) counts in units of 512 bytes.
    let bytes = |file: fs::DirEntry| file.metadata().map_or(0, |metadata| metadata.blocks().saturating_mul(512));
    files.fold((0u64, 0u64), |(sum, count), file| (sum.saturating_add(bytes(file)), count.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn files(sizes: impl IntoIterator<Item = usize>) -> BTreeMap<String, usize> {
        sizes.into_iter().enumerate().map(|(number, size)| (number.to_string(), size)).collect()
    }

    fn room(blocks: u64, files: u64) -> Room {
        Room { block: 4096, blocks: Some(blocks), files: Some(files), names: BTreeSet::new() }
    }

    #[test]
    fn small_files_take_whole_blocks_and_each_counts_with_its_link() {
        let room = room(4096, 10_000);
        assert_eq!(room.check(&files(vec![3; 4096])), Ok(()));
        assert_eq!(room.check(&files(vec![3; 4097])), Err(NoRoom::Size { needed: 16_388, free: 16_384 }));
        assert_eq!(room.check(&files(vec![0; 4999])), Ok(()));
        assert_eq!(room.check(&files(vec![0; 5000])), Err(NoRoom::Number { needed: 10_002, free: 10_000 }));
        let names = BTreeSet::from(["..data", "0", "1", "user"].map(OsString::from));
        let linked = Room { names, ..room.clone() };
        assert_eq!(linked.check(&files(vec![0; 5000])), Ok(()), "two have links already");
        assert_eq!(room.check(&files([4096 * 4096, 0])), Ok(()));
        assert!(room.check(&files([4096 * 4096 + 1])).is_err());
        let unknown = Room { block: 1, blocks: None, files: None, names: BTreeSet::new() };
        assert_eq!(unknown.check(&files(vec![usize::MAX; 100])), Ok(()));
    }

    #[test]
    fn what_old_folders_hold_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["..old", "..new"] {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("a"), [1; 10_000]).unwrap();
            fs::write(folder.path().join(name).join("b"), [1; 10_000]).unwrap();
        }
        let (bytes, files) = usage(folder.path(), |name| name == b"..old");
        assert!(files == 2 && bytes >= 20_000, "{files} files of {bytes} bytes");
        assert_eq!(usage(folder.path(), |_| false), (0, 0));
        assert_eq!(Room::in_folder(&folder.path().join("gone"), |_| true), None);
        let names = Room::in_folder(folder.path(), |_| true).unwrap().names;
        assert_eq!(names, BTreeSet::from(["..new", "..old"].map(OsString::from)));
    }

    proptest! {
        #[test]
        fn what_fits_in_whole_blocks_is_never_refused(sizes in vec(0usize..20_000, 0..50), spare in 0u64..3) {
            let blocks = sizes.iter().map(|size| (*size as u64).div_ceil(4096)).sum::<u64>();
            let files = files(sizes);
            let number = files.len() as u64 * 2 + 2;
            prop_assert_eq!(room(blocks + spare, number + spare).check(&files), Ok(()));
            prop_assert!(room(blocks, number - 1).check(&files).is_err());
            if let Some(less) = blocks.checked_sub(1) {
                prop_assert!(room(less, number).check(&files).is_err());
            }
        }
    }
}
