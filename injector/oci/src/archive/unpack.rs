//! Reads one archive, entry by entry.

use std::io::{self, Read};

use tar::{Entry, EntryType};
use zeroize::Zeroizing;

use crate::archive::layer::{Layer, Node};
use crate::archive::meter::{CrossedBound, Meter, Metered};
use crate::archive::path::{display_path, is_below, normalize_path, relative_to};
use crate::archive::{ArchiveError, Limits};

/// The meaning of whiteouts, files with names such as `.wh.a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whiteouts {
    /// A whiteout removes a path of the layers below, as in an image.
    Apply,
    /// A whiteout is an ordinary file.
    Ignore,
}

/// The search for the wanted files of an archive.
struct Search<'a> {
    whiteouts: Whiteouts,
    /// The folder or the file.
    root: &'a str,
    is_wanted: &'a mut dyn FnMut(&str) -> bool,
    /// The bytes of content that may still be read.
    remaining: usize,
    limit: usize,
}

/// The change that an entry makes.
enum LayerChange {
    Node(Node),
    Folder,
    /// The path is removed from the layers below.
    Remove(String),
    /// The content of the folder is removed from the layers below.
    Empty(String),
    None,
}

enum UnpackFault {
    Io(io::Error),
    Archive(ArchiveError),
}

/// Reads an archive. `root` is the wanted file, or the folder with the wanted files. `is_wanted` gets the path of each
/// file from there.
pub fn unpack(
    archive: impl Read,
    limits: &Limits,
    whiteouts: Whiteouts,
    root: &str,
    is_wanted: &mut dyn FnMut(&str) -> bool,
) -> Result<Layer, ArchiveError> {
    let meter = Meter::new(limits);
    let mut archive = tar::Archive::new(Metered { inner: archive, meter: &meter });
    let fault = |error: io::Error| match meter.crossed() {
        Some(CrossedBound::Total) => ArchiveError::TooLong(limits.unpacked),
        Some(CrossedBound::Header) => ArchiveError::Header(limits.header),
        // The decompressor may know a more exact cause.
        None => error.get_ref().and_then(|cause| cause.downcast_ref()).cloned().unwrap_or(ArchiveError::Malformed),
    };
    let mut entries = archive.entries().map_err(fault)?;
    let mut search = Search { whiteouts, root, is_wanted, remaining: limits.content, limit: limits.content };
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
        // The length of a sparse file is only a claim of the archive, and the newer form has a map in front of the
        // content.
        let kind = entry.header().entry_type();
        if kind.is_gnu_sparse() || (kind.is_file() && is_sparse(&mut entry).map_err(fault)?) {
            return Err(ArchiveError::NoFile(display_path(&entry.path_bytes())));
        }
        let mut read = 0;
        if let Some(path) = normalize_path(&entry.path_bytes())? {
            let change = search.change(&mut entry, &path).map_err(|error| match error {
                UnpackFault::Io(error) => fault(error),
                UnpackFault::Archive(error) => error,
            })?;
            if let LayerChange::Node(Node::File(content)) = &change {
                read = content.len() as u64;
            }
            layer.add(path, change);
        }
        // Reads the rest, so that the next step reads only headers.
        read = io::copy(&mut entry, &mut io::sink()).map_err(fault)?.saturating_add(read);
        if read != entry.size() {
            return Err(ArchiveError::Malformed);
        }
    }
    // Some programs read on after the end of an archive, others do not. Zeros mean the same to all of them.
    meter.limit_headers(None);
    if !has_only_zeros(archive.into_inner()).map_err(fault)? {
        return Err(ArchiveError::Trailing);
    }
    layer.unpacked = limits.unpacked.saturating_sub(meter.remaining());
    Ok(layer)
}

/// Reads to the end, and returns whether there was anything but zeros.
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

/// Returns whether this is a sparse file as `tar --format=posix` writes it.
fn is_sparse<R: Read>(entry: &mut Entry<'_, R>) -> io::Result<bool> {
    let records = entry.pax_extensions()?.into_iter().flatten();
    Ok(records.flatten().any(|record| record.key_bytes().starts_with(b"GNU.sparse.")))
}

impl Layer {
    fn add(&mut self, path: String, change: LayerChange) {
        match change {
            LayerChange::Node(node) => drop(self.nodes.insert(path, node)),
            LayerChange::Folder => {
                self.nodes.remove(&path);
                self.folders.insert(path);
            }
            LayerChange::Remove(path) => drop(self.removed.insert(path)),
            LayerChange::Empty(path) => drop(self.emptied.insert(path)),
            LayerChange::None => {}
        }
    }
}

impl Search<'_> {
    fn change<R: Read>(&mut self, entry: &mut Entry<'_, R>, path: &str) -> Result<LayerChange, UnpackFault> {
        let kind = entry.header().entry_type();
        // Such an entry is metadata of the archive itself.
        if kind.is_pax_global_extensions() {
            return Ok(LayerChange::None);
        }
        if self.whiteouts == Whiteouts::Apply
            && let Some(change) = whiteout(path)
        {
            return Ok(change);
        }
        // Old archives mark folders only by their names.
        if kind.is_dir() || (kind.is_file() && entry.path_bytes().ends_with(b"/")) {
            return Ok(LayerChange::Folder);
        }
        let is_link = kind.is_symlink() || kind.is_hard_link();
        // A link on the way to the root is an error, unless another layer replaces it.
        if is_link && is_below(self.root, path) {
            return Ok(LayerChange::Node(Node::Link));
        }
        if !relative_to(path, self.root).is_some_and(|path| (self.is_wanted)(path)) {
            return Ok(LayerChange::Remove(path.to_owned()));
        }
        if is_link {
            return Ok(LayerChange::Node(Node::Link));
        }
        if !matches!(kind, EntryType::Regular | EntryType::Continuous) {
            return Ok(LayerChange::Node(Node::Other));
        }
        self.read_content(entry, path).map(|content| LayerChange::Node(Node::File(content)))
    }

    /// Reads the content of a file, after its size was checked.
    fn read_content<R: Read>(
        &mut self,
        entry: &mut Entry<'_, R>,
        path: &str,
    ) -> Result<Zeroizing<Vec<u8>>, UnpackFault> {
        let size = usize::try_from(entry.size()).ok().filter(|size| *size <= self.remaining);
        let size = size.ok_or_else(|| {
            UnpackFault::Archive(ArchiveError::TooLarge { path: display_path(path.as_bytes()), limit: self.limit })
        })?;
        let mut content = Zeroizing::new(Vec::with_capacity(size));
        if entry.take(size as u64).read_to_end(&mut content).map_err(UnpackFault::Io)? != size {
            return Err(UnpackFault::Archive(ArchiveError::Malformed));
        }
        self.remaining = self.remaining.saturating_sub(size);
        Ok(content)
    }
}

/// Returns the change that a whiteout makes, if the path is a whiteout.
fn whiteout(path: &str) -> Option<LayerChange> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let hidden = name.strip_prefix(".wh.")?;
    Some(match hidden {
        ".wh..opq" => LayerChange::Empty(folder.to_owned()),
        // The storage driver uses such names itself.
        hidden if hidden.is_empty() || hidden.starts_with(".wh.") => LayerChange::None,
        hidden if folder.is_empty() => LayerChange::Remove(hidden.to_owned()),
        hidden => LayerChange::Remove(format!("{folder}/{hidden}")),
    })
}
