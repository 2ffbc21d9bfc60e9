//! The layers of an artifact, one on the other: which of them are wanted, and what files there are in the end.

use std::collections::BTreeMap;
use std::io::{self, Read};

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use tokio::sync::{mpsc, oneshot};
use zeroize::Zeroizing;

use crate::archive::{ArchiveError, Layer, Limits, Node, below, is_below, place, unpack};
use crate::frames::{Frames, is_frame};
use crate::manifest::Descriptor;

/// What a layer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A file of this path.
    File(String),
    /// An archive.
    Archive,
    /// Neither, as far as its media type says.
    Unknown,
}

/// The annotation that gives a layer a name, and makes it a file.
const TITLE: &str = "org.opencontainers.image.title";
/// The annotation by which `oras` says that a layer with a name is an archive all the same.
const UNPACK: &str = "io.deis.oras.content.unpack";

/// What this layer is.
pub(crate) fn kind(layer: &Descriptor) -> Result<Kind, ArchiveError> {
    let annotation = |name: &str| layer.annotations.get(name);
    if annotation(UNPACK).is_some_and(|it| it == "true") {
        return Ok(Kind::Archive);
    }
    if let Some(title) = annotation(TITLE) {
        return place(title.as_bytes())?.map(Kind::File).ok_or_else(|| ArchiveError::Name(String::new()));
    }
    let base = layer.media_type.split(['+', ';']).next().unwrap_or_default();
    let base = base.trim_end_matches(".gzip").trim_end_matches(".zstd");
    Ok(if [".tar", "/tar", "-tar"].iter().any(|it| base.ends_with(it)) { Kind::Archive } else { Kind::Unknown })
}

/// The archive in a blob, whichever way it is compressed: all members or frames of it.
pub(crate) fn decompressed<'a, R: Read + 'a>(head: &[u8], blob: R) -> Box<dyn Read + 'a> {
    if head.starts_with(&[0x1f, 0x8b]) {
        Box::new(MultiGzDecoder::new(blob))
    } else if is_frame(head) {
        Box::new(Frames::new(blob))
    } else {
        Box::new(blob)
    }
}

/// Unpacks the blob of an archive on a thread for long work, which asks back which files are wanted.
pub(crate) async fn unpacked(
    blob: Bytes,
    limits: Limits,
    image: bool,
    root: &str,
    wanted: &(dyn Fn(&str) -> bool + Send + Sync),
) -> Result<Layer, ArchiveError> {
    let (ask, mut asked) = mpsc::channel::<(String, oneshot::Sender<bool>)>(1);
    let root = root.to_owned();
    let work = tokio::task::spawn_blocking(move || {
        let mut is_wanted = |path: &str| {
            let (answer, answered) = oneshot::channel();
            ask.blocking_send((path.to_owned(), answer)).is_ok() && answered.blocking_recv().unwrap_or(false)
        };
        let abandoned = ask.clone();
        let head = blob.slice(..blob.len().min(4));
        let blob = Abandonable { inner: io::Cursor::new(blob), is_abandoned: move || abandoned.is_closed() };
        unpack(decompressed(&head, blob), &limits, image, &root, &mut is_wanted)
    });
    while let Some((path, answer)) = asked.recv().await {
        let _ = answer.send(wanted(&path));
    }
    work.await.map_err(|_| ArchiveError::Malformed)?
}

/// A blob that ends when nobody waits for what is in it.
struct Abandonable<R, F> {
    inner: R,
    is_abandoned: F,
}

impl<R: Read, F: Fn() -> bool> Read for Abandonable<R, F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if (self.is_abandoned)() { Err(io::Error::other("abandoned")) } else { self.inner.read(into) }
    }
}

/// Bounds what is held of all layers.
pub(crate) fn check(nodes: &BTreeMap<String, Node>, limit: usize) -> Result<(), ArchiveError> {
    let mut bytes = 0;
    for (path, node) in nodes {
        if let Node::File(content) = node {
            bytes = content.len().saturating_add(bytes);
        }
        if bytes > limit {
            return Err(ArchiveError::TooLarge { path: path.clone(), limit });
        }
    }
    Ok(())
}

/// The files in the end, by their path from `root` on.
pub(crate) fn files(
    nodes: BTreeMap<String, Node>,
    root: &str,
) -> Result<BTreeMap<String, Zeroizing<Vec<u8>>>, ArchiveError> {
    let mut files = BTreeMap::new();
    for (path, node) in nodes {
        let Node::File(content) = node else {
            return Err(if node == Node::Link { ArchiveError::Link(path) } else { ArchiveError::NoFile(path) });
        };
        if let Some(path) = below(&path, root) {
            files.insert(path.to_owned(), content);
        }
    }
    Ok(files)
}

/// Returns whether a layer that is a file of this path is wanted, and as what.
pub(crate) fn wanted_file<'a>(path: &'a str, root: &str, wanted: &dyn Fn(&str) -> bool) -> Option<&'a str> {
    below(path, root).filter(|_| is_below(path, root)).filter(|path| wanted(path))
}
