//! Tar archives of untrusted senders: unpacks the wanted files below a folder in memory, within bounds.

mod layer;
mod meter;
mod path;
mod unpack;

use nudge_protocol::limits::MAX_DICTIONARY_BYTES;

pub use layer::Layer;
pub(crate) use layer::Node;
pub(crate) use path::{is_below, normalize_path, relative_to};
pub use unpack::{Whiteouts, unpack};

/// The limits for reading an archive.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum number of entries of any kind.
    pub entries: usize,
    /// The maximum bytes of the archive, decompressed.
    pub unpacked: u64,
    /// The maximum bytes of names and other headers in front of one entry.
    pub header: u64,
    /// The maximum bytes of the wanted files together.
    pub content: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { entries: 10_000, unpacked: 512 * 1024 * 1024, header: 64 * 1024, content: MAX_DICTIONARY_BYTES }
    }
}

/// The reason why an archive is not used. Paths are written as in the archive, on one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveError {
    /// The layer is not an archive.
    #[error("a layer of the artifact is not a tar archive, or is damaged")]
    Malformed,
    /// Data follows the end of the archive.
    #[error(
        "a layer of the artifact continues after the end of its archive, and what is there would be missing; push it as one archive"
    )]
    Trailing,
    /// Decompression needs too much memory.
    #[error(
        "a layer of the artifact is compressed by zstd with a window of more than {0} bytes, which is the limit; compress it without --ultra, \
         or with at most --long=25"
    )]
    Window(u64),
    /// A path leaves the root of the artifact.
    #[error("the artifact has the path {0:?}, which leaves its root; nothing of it is used")]
    Outside(String),
    /// A wanted file is a link.
    #[error(
        "{0} is a link in the artifact, and links are not followed; put the file itself there, or name another path"
    )]
    Link(String),
    /// A wanted path is neither a file nor a folder.
    #[error("{0} is a device, a pipe or a sparse file in the artifact; put a regular file there")]
    NoFile(String),
    /// A path is not UTF-8, or has control characters.
    #[error("the artifact has the path {0:?}, which is not UTF-8")]
    Name(String),
    /// A path is too long or too deep.
    #[error("the artifact has the path {0:?}, which is too long, or in too many folders")]
    Deep(String),
    /// The artifact has too many entries.
    #[error("the artifact has more than {0} files, folders and links, which is the limit; push fewer")]
    TooMany(usize),
    /// The layer has too many bytes when it is decompressed.
    #[error("a layer of the artifact has more than {0} bytes when it is decompressed, which is the limit")]
    TooLong(u64),
    /// An entry has too many bytes of headers.
    #[error("a layer of the artifact has an entry whose headers have more than {0} bytes")]
    Header(u64),
    /// The wanted files have too many bytes together.
    #[error(
        "with {path}, the wanted files have more than {limit} bytes, which is the limit; name a path or files with fewer bytes"
    )]
    TooLarge {
        /// The file that exceeds the limit.
        path: String,
        /// The limit in bytes.
        limit: usize,
    },
}

#[cfg(test)]
mod layer_tests;
#[cfg(test)]
mod unpack_tests;
