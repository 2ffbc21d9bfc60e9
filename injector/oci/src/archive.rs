//! One tar archive, unpacked in memory: what of it stands below a folder and is wanted, within bounds. It comes from anybody.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};

use nudge_protocol::bounded_text::one_line;
use nudge_protocol::limits::MAX_DICTIONARY_BYTES;
use tar::{Entry, EntryType};
use zeroize::Zeroizing;

/// How much an archive may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Entries of any kind.
    pub entries: usize,
    /// Bytes of the archive, decompressed.
    pub unpacked: u64,
    /// Bytes of names and other headers in front of one entry.
    pub header: u64,
    /// Bytes of the content of wanted files.
    pub content: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { entries: 10_000, unpacked: 512 * 1024 * 1024, header: 64 * 1024, content: MAX_DICTIONARY_BYTES }
    }
}

/// Why an archive is not used. Paths are those of the archive, on one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveError {
    /// Not an archive.
    #[error("a layer of the artifact is no tar archive, or is damaged")]
    Malformed,
    /// It would be written elsewhere.
    #[error("the artifact has the path {0:?}, which leaves its root; nothing of it is used")]
    Outside(String),
    /// A link is wanted.
    #[error(
        "{0} is a link in the artifact, and links are not followed; put the file itself there, or name another path"
    )]
    Link(String),
    /// Neither file nor folder.
    #[error("{0} is a device, a pipe or a sparse file in the artifact; put a regular file there")]
    NoFile(String),
    /// The name.
    #[error("the artifact has the path {0:?}, which is no text")]
    Name(String),
    /// Too many entries.
    #[error("the artifact has more than {0} files, folders and links, which is the limit; push less of them")]
    TooMany(usize),
    /// Too long when decompressed.
    #[error("a layer of the artifact has more than {0} bytes when it is decompressed, which is the limit")]
    TooLong(u64),
    /// An entry with too much in front of it.
    #[error("a layer of the artifact has an entry whose headers have more than {0} bytes")]
    Header(u64),
    /// Too much content.
    #[error(
        "the wanted files have more than {limit} bytes, which is the limit, with {path}; name a path or files with less in them"
    )]
    TooLarge {
        /// The file that was one too many.
        path: String,
        /// The bound.
        limit: usize,
    },
}

/// What a path is.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Node {
    File(Zeroizing<Vec<u8>>),
    Link,
    /// A device or alike.
    Other,
}

/// What one archive changes in those below it.
#[derive(Default)]
pub struct Layer {
    /// By path from the root of the artifact.
    pub(crate) nodes: BTreeMap<String, Node>,
    /// Folders, which replace files and links below them.
    folders: BTreeSet<String>,
    /// Paths that are removed from the layers below.
    removed: BTreeSet<String>,
    /// Folders whose content in the layers below is removed.
    emptied: BTreeSet<String>,
    /// What reading it cost.
    entries: usize,
    unpacked: u64,
}

/// Reads an archive. `root` is the folder of which files are wanted, or a file; whether they are is asked with their path from there.
/// Names of whiteouts remove what layers below have if `image` is set.
pub fn unpack(
    archive: impl Read,
    limits: &Limits,
    image: bool,
    root: &str,
    wanted: &mut dyn FnMut(&str) -> bool,
) -> Result<Layer, ArchiveError> {
    let meter = Meter { total: Cell::new(limits.unpacked), header: Cell::new(None), crossed: Cell::new(None) };
    let mut archive = tar::Archive::new(Metered { inner: archive, meter: &meter });
    let fault = |_: io::Error| match meter.crossed.get() {
        Some(Crossed::Total) => ArchiveError::TooLong(limits.unpacked),
        Some(Crossed::Header) => ArchiveError::Header(limits.header),
        None => ArchiveError::Malformed,
    };
    let mut entries = archive.entries().map_err(fault)?;
    let (mut layer, mut room) = (Layer::default(), limits.content);
    for count in 0.. {
        meter.header.set(Some(limits.header));
        let Some(entry) = entries.next() else { break };
        let mut entry = entry.map_err(fault)?;
        meter.header.set(None);
        if count == limits.entries {
            return Err(ArchiveError::TooMany(limits.entries));
        }
        layer.entries = count + 1;
        // What such an entry is long is not what stands in the archive.
        if entry.header().entry_type().is_gnu_sparse() {
            return Err(ArchiveError::NoFile(shown(&entry.path_bytes())));
        }
        if let Some(path) = place(&entry.path_bytes())? {
            match read(&mut entry, &path, image, root, wanted, &mut room, limits).map_err(|error| match error {
                ReadError::Io(error) => fault(error),
                ReadError::Archive(error) => error,
            })? {
                Change::Node(node) => drop(layer.nodes.insert(path, node)),
                Change::Folder => {
                    layer.nodes.remove(&path);
                    layer.folders.insert(path);
                }
                Change::Removed(path) => drop(layer.removed.insert(path)),
                Change::Emptied(path) => drop(layer.emptied.insert(path)),
                Change::None => drop(layer.nodes.remove(&path)),
            }
        }
        // The rest, so that what the next step reads is nothing but headers.
        io::copy(&mut entry, &mut io::sink()).map_err(fault)?;
    }
    layer.unpacked = limits.unpacked - meter.total.get();
    Ok(layer)
}

enum Change {
    Node(Node),
    Folder,
    Removed(String),
    Emptied(String),
    /// A file or link that is not wanted.
    None,
}

enum ReadError {
    Io(io::Error),
    Archive(ArchiveError),
}

fn read<R: Read>(
    entry: &mut Entry<'_, R>,
    path: &str,
    image: bool,
    root: &str,
    wanted: &mut dyn FnMut(&str) -> bool,
    room: &mut usize,
    limits: &Limits,
) -> Result<Change, ReadError> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    if let Some(hidden) = name.strip_prefix(WHITEOUT).filter(|_| image) {
        return Ok(match hidden {
            OPAQUE => Change::Emptied(folder.to_owned()),
            "" => Change::None,
            // Those of the storage driver itself.
            hidden if hidden.starts_with(WHITEOUT) => Change::None,
            hidden if folder.is_empty() => Change::Removed(hidden.to_owned()),
            hidden => Change::Removed(format!("{folder}/{hidden}")),
        });
    }
    let (kind, size) = (entry.header().entry_type(), entry.size());
    let is_folder = kind.is_dir() || (kind.is_file() && entry.path_bytes().ends_with(b"/"));
    if is_folder {
        return Ok(Change::Folder);
    }
    // Metadata of the archive itself.
    if matches!(kind, EntryType::XGlobalHeader) {
        return Ok(Change::None);
    }
    let is_file = matches!(kind, EntryType::Regular | EntryType::Continuous);
    // What stands in the way of the root itself is kept, and complained of only if no layer replaces it.
    let in_the_way = is_below(root, path) && (root != path || !is_file);
    let is_wanted = in_the_way || below(path, root).is_some_and(|path| wanted(path));
    if !is_wanted {
        return Ok(Change::None);
    }
    if matches!(kind, EntryType::Symlink | EntryType::Link) {
        return Ok(Change::Node(Node::Link));
    }
    if !is_file || in_the_way {
        return Ok(Change::Node(Node::Other));
    }
    // Sizes before anything is read.
    let too_large = || {
        let path = one_line(path, SHOWN);
        ReadError::Archive(ArchiveError::TooLarge { path, limit: limits.content })
    };
    let size = usize::try_from(size).ok().filter(|size| *size <= *room).ok_or_else(too_large)?;
    let mut content = Zeroizing::new(Vec::with_capacity(size));
    let read = entry.take(size as u64).read_to_end(&mut content).map_err(ReadError::Io)?;
    if read != size {
        return Err(ReadError::Archive(ArchiveError::Malformed));
    }
    *room -= size;
    Ok(Change::Node(Node::File(content)))
}

/// What names of whiteouts begin with.
const WHITEOUT: &str = ".wh.";
/// The rest of the name that empties its folder.
const OPAQUE: &str = ".wh..opq";
/// The most bytes of a path that a message has.
const SHOWN: usize = 200;

impl Layer {
    /// What there is when this layer lies on those below.
    pub(crate) fn onto(self, mut below: BTreeMap<String, Node>) -> BTreeMap<String, Node> {
        let Self { nodes, folders, removed, emptied, .. } = self;
        let has_folder_of = |set: &BTreeSet<String>, path: &str| parents(path).any(|parent| set.contains(parent));
        below.retain(|path, _| {
            let gone = removed.contains(path) || has_folder_of(&removed, path);
            // A file in the place of a folder hides what was in it, and the other way round.
            let hidden = parents(path).any(|parent| !parent.is_empty() && nodes.contains_key(parent));
            !(gone || has_folder_of(&emptied, path) || hidden || folders.contains(path))
        });
        for (path, node) in nodes {
            for parent in parents(&path) {
                below.remove(parent);
            }
            below.insert(path, node);
        }
        below
    }

    /// How many entries and bytes are left of these limits for the next layer.
    pub(crate) fn left(&self, limits: &Limits) -> (usize, u64) {
        (limits.entries - self.entries, limits.unpacked - self.unpacked)
    }

    /// The number of files that were unpacked.
    pub fn files(&self) -> usize {
        self.nodes.values().filter(|node| matches!(node, Node::File(_))).count()
    }
}

/// The folders that a path is in, the root among them.
fn parents(path: &str) -> impl Iterator<Item = &str> {
    path.rmatch_indices('/').map(|(at, _)| &path[..at]).chain(std::iter::once(""))
}

/// Whether `path` is this folder, or in it.
pub(crate) fn is_below(path: &str, folder: &str) -> bool {
    folder.is_empty() || path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The path from `root` on; of the root itself, which is a file then, its name.
pub(crate) fn below<'a>(path: &'a str, root: &str) -> Option<&'a str> {
    if path == root {
        return path.rsplit('/').next();
    }
    if root.is_empty() { Some(path) } else { path.strip_prefix(root)?.strip_prefix('/') }
}

/// The path of an entry from the root of the archive, without `.`; of the root itself there is none.
pub(crate) fn place(bytes: &[u8]) -> Result<Option<String>, ArchiveError> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| !text.chars().any(char::is_control));
    let text = text.ok_or_else(|| ArchiveError::Name(shown(bytes)))?;
    let names: Vec<&str> = text.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
    if text.starts_with('/') || names.contains(&"..") {
        return Err(ArchiveError::Outside(shown(bytes)));
    }
    Ok((!names.is_empty()).then(|| names.join("/")))
}

fn shown(path: &[u8]) -> String {
    one_line(&String::from_utf8_lossy(&path[..path.len().min(SHOWN)]), SHOWN)
}

#[derive(Clone, Copy)]
enum Crossed {
    Total,
    Header,
}

/// What may still be read.
struct Meter {
    total: Cell<u64>,
    /// While headers are read.
    header: Cell<Option<u64>>,
    crossed: Cell<Option<Crossed>>,
}

struct Metered<'a, R> {
    inner: R,
    meter: &'a Meter,
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        let taken = |left: u64| left.checked_sub(read as u64);
        let cross = |what| {
            self.meter.crossed.set(Some(what));
            io::Error::other("too much")
        };
        self.meter.total.set(taken(self.meter.total.get()).ok_or_else(|| cross(Crossed::Total))?);
        if let Some(left) = self.meter.header.get() {
            self.meter.header.set(Some(taken(left).ok_or_else(|| cross(Crossed::Header))?));
        }
        Ok(read)
    }
}
