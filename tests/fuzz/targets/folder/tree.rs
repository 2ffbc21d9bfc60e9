//! A small tree of files, made from a description that the fuzzer writes. Nothing outside of it is ever touched: the
//! builder follows no links.
//!
//! One line is one step, and what can't be done is skipped. In targets `@` at the beginning stands for the folder above
//! the tree.
//!
//! | line | what it makes |
//! | --- | --- |
//! | `d PATH` | a folder, with those above it; the other lines make those above, too |
//! | `f PATH=CONTENT` | a file |
//! | `h PATH=SIZE` | a file of so many zeros |
//! | `l PATH>TARGET` | a symbolic link |
//! | `p PATH`, `s PATH` | a FIFO, a socket |
//! | `r PATH` | nothing any more where something was |

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use nix::sys::stat::{Mode, SFlag, mknod};

/// Largest file of zeros, in bytes: more than a value may have.
const MAX_HOLE: u64 = 1_100_000;
/// Most files of zeros; reading them takes its time.
const MAX_HOLES: u32 = 5;

pub(crate) struct Tree {
    above: PathBuf,
    root: PathBuf,
    holes: u32,
}

impl Tree {
    /// An empty tree in the folder `above`.
    pub(crate) fn new(above: &Path) -> Self {
        let root = above.join("tree");
        fs::create_dir(&root).unwrap();
        Self { above: above.to_owned(), root, holes: 0 }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Does what one line says; `None` when it can't be done.
    pub(crate) fn step(&mut self, line: &[u8]) -> Option<()> {
        let (&kind, rest) = line.split_first()?;
        let rest = rest.strip_prefix(b" ")?;
        match kind {
            b'd' => {
                let path = self.place(rest)?;
                fs::create_dir(path).ok()
            }
            b'f' => {
                let (path, content) = split(rest, b'=')?;
                let path = self.place(path)?;
                fs::write(path, content).ok()
            }
            b'h' => {
                let (path, size) = split(rest, b'=')?;
                let size: u64 = std::str::from_utf8(size).ok()?.parse().ok()?;
                self.holes = Some(self.holes + 1).filter(|&holes| holes <= MAX_HOLES)?;
                File::create_new(self.place(path)?).ok()?.set_len(size.min(MAX_HOLE)).ok()
            }
            b'l' => {
                let (path, target) = split(rest, b'>')?;
                let path = self.place(path)?;
                let target = match target.strip_prefix(b"@") {
                    Some(target) => [self.above.as_os_str().as_bytes(), target].concat(),
                    None => target.to_vec(),
                };
                symlink(OsStr::from_bytes(&target), path).ok()
            }
            b'p' => mknod(&self.place(rest)?, SFlag::S_IFIFO, Mode::S_IRWXU, 0).ok(),
            b's' => mknod(&self.place(rest)?, SFlag::S_IFSOCK, Mode::S_IRWXU, 0).ok(),
            b'r' => self.place(rest).map(drop),
            _ => None,
        }
    }

    /// The place for something new, with real folders above it and nothing in it.
    fn place(&self, path: &[u8]) -> Option<PathBuf> {
        let path = Path::new(OsStr::from_bytes(path));
        let plain = |part: Component| matches!(part, Component::Normal(_));
        let depth = path.components().count();
        if !path.components().all(plain) || !(1..=4).contains(&depth) {
            return None;
        }
        let mut place = self.root.clone();
        for (at, part) in path.components().enumerate() {
            place.push(part);
            let found = fs::symlink_metadata(&place).ok();
            if at + 1 < depth {
                match found {
                    Some(found) if found.is_dir() => {}
                    Some(_) => return None,
                    None => fs::create_dir(&place).ok()?,
                }
            } else if found.as_ref().is_some_and(fs::Metadata::is_dir) {
                fs::remove_dir_all(&place).ok()?;
            } else if found.is_some() {
                fs::remove_file(&place).ok()?;
            }
        }
        Some(place)
    }
}

fn split(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|&byte| byte == at)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}
