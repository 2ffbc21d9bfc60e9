//! One archive, entry by entry.

use std::io::{self, Read};

use tar::{Entry, EntryType};
use zeroize::Zeroizing;

use crate::archive::layer::{Layer, Node};
use crate::archive::meter::{CrossedBound, Meter, Metered};
use crate::archive::path::{below, is_below, place, shown};
use crate::archive::{ArchiveError, Limits};

/// What is looked for in an archive.
struct Search<'a> {
    /// Whether names of whiteouts remove what layers below have.
    image: bool,
    /// The folder or the file.
    root: &'a str,
    is_wanted: &'a mut dyn FnMut(&str) -> bool,
    /// Bytes of content that there is room for.
    room: usize,
    limit: usize,
}

/// What an entry does.
enum Change {
    Node(Node),
    Folder,
    /// A path that the layers below have no more.
    Removed(String),
    /// A folder whose content they have no more.
    Emptied(String),
    None,
}

enum Fault {
    Io(io::Error),
    Archive(ArchiveError),
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
    let meter = Meter::new(limits);
    let mut archive = tar::Archive::new(Metered { inner: archive, meter: &meter });
    let fault = |error: io::Error| match meter.crossed() {
        Some(CrossedBound::Total) => ArchiveError::TooLong(limits.unpacked),
        Some(CrossedBound::Header) => ArchiveError::Header(limits.header),
        // Those that decompress may know more.
        None => error.get_ref().and_then(|it| it.downcast_ref()).cloned().unwrap_or(ArchiveError::Malformed),
    };
    let mut entries = archive.entries().map_err(fault)?;
    let mut search = Search { image, root, is_wanted: wanted, room: limits.content, limit: limits.content };
    let mut layer = Layer::default();
    loop {
        meter.limit_headers(Some(limits.header));
        let Some(entry) = entries.next() else { break };
        let mut entry = entry.map_err(fault)?;
        meter.limit_headers(None);
        layer.entries = layer.entries.saturating_add(1);
        if layer.entries > limits.entries {
            return Err(ArchiveError::TooMany(limits.entries));
        }
        // How long such a file is, the archive only claims; and the newer form has a map in front of its content.
        let kind = entry.header().entry_type();
        if kind.is_gnu_sparse() || (kind.is_file() && is_sparse(&mut entry).map_err(fault)?) {
            return Err(ArchiveError::NoFile(shown(&entry.path_bytes())));
        }
        let mut read = 0;
        if let Some(path) = place(&entry.path_bytes())? {
            let change = search.change(&mut entry, &path).map_err(|error| match error {
                Fault::Io(error) => fault(error),
                Fault::Archive(error) => error,
            })?;
            if let Change::Node(Node::File(content)) = &change {
                read = content.len() as u64;
            }
            layer.add(path, change);
        }
        // The rest, so that what the next step reads is nothing but headers.
        read = io::copy(&mut entry, &mut io::sink()).map_err(fault)?.saturating_add(read);
        if read != entry.size() {
            return Err(ArchiveError::Malformed);
        }
    }
    // Programs differ in whether they read on behind the end. Nothing but zeros is the same for all of them.
    meter.limit_headers(None);
    if !has_only_zeros(archive.into_inner()).map_err(fault)? {
        return Err(ArchiveError::Trailing);
    }
    layer.unpacked = limits.unpacked.saturating_sub(meter.left());
    Ok(layer)
}

/// Reads to the end.
fn has_only_zeros(mut archive: impl Read) -> io::Result<bool> {
    let mut block = [0; 4096];
    loop {
        match archive.read(&mut block)? {
            0 => return Ok(true),
            read if block[..read].iter().all(|byte| *byte == 0) => {}
            _ => return Ok(false),
        }
    }
}

/// Whether this is a sparse file as `tar --format=posix` writes it.
fn is_sparse<R: Read>(entry: &mut Entry<'_, R>) -> io::Result<bool> {
    let records = entry.pax_extensions()?.into_iter().flatten();
    Ok(records.flatten().any(|record| record.key_bytes().starts_with(b"GNU.sparse.")))
}

impl Layer {
    fn add(&mut self, path: String, change: Change) {
        match change {
            Change::Node(node) => drop(self.nodes.insert(path, node)),
            Change::Folder => {
                self.nodes.remove(&path);
                self.folders.insert(path);
            }
            Change::Removed(path) => drop(self.removed.insert(path)),
            Change::Emptied(path) => drop(self.emptied.insert(path)),
            Change::None => {}
        }
    }
}

impl Search<'_> {
    fn change<R: Read>(&mut self, entry: &mut Entry<'_, R>, path: &str) -> Result<Change, Fault> {
        let kind = entry.header().entry_type();
        // Metadata of the archive itself.
        if kind.is_pax_global_extensions() {
            return Ok(Change::None);
        }
        if self.image
            && let Some(change) = whiteout(path)
        {
            return Ok(change);
        }
        // Old archives know folders by their names alone.
        if kind.is_dir() || (kind.is_file() && entry.path_bytes().ends_with(b"/")) {
            return Ok(Change::Folder);
        }
        let is_link = kind.is_symlink() || kind.is_hard_link();
        // A link that leads to the root is complained of, unless another layer replaces it.
        if is_link && is_below(self.root, path) {
            return Ok(Change::Node(Node::Link));
        }
        if !below(path, self.root).is_some_and(|path| (self.is_wanted)(path)) {
            return Ok(Change::Removed(path.to_owned()));
        }
        if is_link {
            return Ok(Change::Node(Node::Link));
        }
        if !matches!(kind, EntryType::Regular | EntryType::Continuous) {
            return Ok(Change::Node(Node::Other));
        }
        self.content(entry, path).map(|content| Change::Node(Node::File(content)))
    }

    /// The content of a file, whose size is looked at before anything is read.
    fn content<R: Read>(&mut self, entry: &mut Entry<'_, R>, path: &str) -> Result<Zeroizing<Vec<u8>>, Fault> {
        let size = usize::try_from(entry.size()).ok().filter(|size| *size <= self.room);
        let size = size.ok_or_else(|| {
            Fault::Archive(ArchiveError::TooLarge { path: shown(path.as_bytes()), limit: self.limit })
        })?;
        let mut content = Zeroizing::new(Vec::with_capacity(size));
        if entry.take(size as u64).read_to_end(&mut content).map_err(Fault::Io)? != size {
            return Err(Fault::Archive(ArchiveError::Malformed));
        }
        self.room = self.room.saturating_sub(size);
        Ok(content)
    }
}

/// What the name of a whiteout removes.
fn whiteout(path: &str) -> Option<Change> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let hidden = name.strip_prefix(".wh.")?;
    Some(match hidden {
        ".wh..opq" => Change::Emptied(folder.to_owned()),
        // Those of the storage driver itself.
        hidden if hidden.is_empty() || hidden.starts_with(".wh.") => Change::None,
        hidden if folder.is_empty() => Change::Removed(hidden.to_owned()),
        hidden => Change::Removed(format!("{folder}/{hidden}")),
    })
}
