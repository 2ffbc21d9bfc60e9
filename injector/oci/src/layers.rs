//! The layers of an artifact: their kinds, their unpacking, and the files that result from all of them.

use std::collections::BTreeMap;
use std::io::{self, Read};

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use tokio::sync::{mpsc, oneshot};
use zeroize::Zeroizing;

use crate::archive::{ArchiveError, Layer, Limits, Node, Whiteouts, is_below, normalize_path, relative_to, unpack};
use crate::frames::{Frames, is_frame};
use crate::manifest::Descriptor;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LayerKind {
    /// A file with this path.
    File(String),
    Archive,
    /// A layer whose media type is not that of an archive.
    Unknown,
}

/// The annotation that gives a layer a name, and makes it a file.
const TITLE: &str = "org.opencontainers.image.title";
/// The annotation that `oras` uses to mark a named layer as an archive.
const UNPACK: &str = "io.deis.oras.content.unpack";

pub(crate) fn layer_kind(layer: &Descriptor) -> Result<LayerKind, ArchiveError> {
    let annotation = |name: &str| layer.annotations.get(name);
    if annotation(UNPACK).is_some_and(|value| value == "true") {
        return Ok(LayerKind::Archive);
    }
    if let Some(title) = annotation(TITLE) {
        let path = normalize_path(title.as_bytes())?;
        return path.map(LayerKind::File).ok_or_else(|| ArchiveError::Name(String::new()));
    }
    let base = layer.media_type.split(['+', ';']).next().unwrap_or_default();
    let base = base.trim_end_matches(".gzip").trim_end_matches(".zstd");
    let is_archive = [".tar", "/tar", "-tar"].iter().any(|suffix| base.ends_with(suffix));
    Ok(if is_archive { LayerKind::Archive } else { LayerKind::Unknown })
}

/// Returns a reader of the archive in a blob, with any kind of compression. It reads all members or frames of the blob.
pub(crate) fn decompress<'a, R: Read + 'a>(head: &[u8], blob: R) -> Box<dyn Read + 'a> {
    if head.starts_with(&[0x1f, 0x8b]) {
        Box::new(MultiGzDecoder::new(blob))
    } else if is_frame(head) {
        Box::new(Frames::new(blob))
    } else {
        Box::new(blob)
    }
}

/// A question of the thread that unpacks: whether the file at a path is wanted.
struct LayerQuestion {
    path: String,
    answer: oneshot::Sender<bool>,
}

/// Unpacks the blob of an archive on a thread for blocking work. The thread asks back which files are wanted.
pub(crate) async fn unpack_blob(
    blob: Bytes,
    limits: Limits,
    whiteouts: Whiteouts,
    root: &str,
    is_wanted: &(dyn Fn(&str) -> bool + Send + Sync),
) -> Result<Layer, ArchiveError> {
    let (sender, mut questions) = mpsc::channel(1);
    let root = root.to_owned();
    let work = tokio::task::spawn_blocking(move || {
        let mut ask = |path: &str| {
            let (answer, receiver) = oneshot::channel();
            let question = LayerQuestion { path: path.to_owned(), answer };
            sender.blocking_send(question).is_ok() && receiver.blocking_recv().unwrap_or(false)
        };
        let head = blob.slice(..blob.len().min(4));
        let blob = AbandonableBlob { inner: io::Cursor::new(blob), questions: sender.clone() };
        unpack(decompress(&head, blob), &limits, whiteouts, &root, &mut ask)
    });
    while let Some(LayerQuestion { path, answer }) = questions.recv().await {
        let _ = answer.send(is_wanted(&path));
    }
    work.await.map_err(|_| ArchiveError::Malformed)?
}

/// A blob whose reading fails after nobody answers questions any more, because the pull has ended.
struct AbandonableBlob {
    inner: io::Cursor<Bytes>,
    questions: mpsc::Sender<LayerQuestion>,
}

impl Read for AbandonableBlob {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.questions.is_closed() { Err(io::Error::other("abandoned")) } else { self.inner.read(buffer) }
    }
}

/// Checks that the files of all layers together have at most `limit` bytes.
pub(crate) fn check_total_bytes(nodes: &BTreeMap<String, Node>, limit: usize) -> Result<(), ArchiveError> {
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

/// Returns the files of all layers together, by their path from `root` on.
pub(crate) fn collect_files(
    nodes: BTreeMap<String, Node>,
    root: &str,
) -> Result<BTreeMap<String, Zeroizing<Vec<u8>>>, ArchiveError> {
    let mut files = BTreeMap::new();
    for (path, node) in nodes {
        let Node::File(content) = node else {
            return Err(if node == Node::Link { ArchiveError::Link(path) } else { ArchiveError::NoFile(path) });
        };
        if let Some(path) = relative_to(&path, root) {
            files.insert(path.to_owned(), content);
        }
    }
    Ok(files)
}

/// Returns whether the file of a layer is wanted, by its path.
pub(crate) fn is_wanted_file(path: &str, root: &str, is_wanted: &dyn Fn(&str) -> bool) -> bool {
    is_below(path, root) && relative_to(path, root).is_some_and(is_wanted)
}
