//! Tar archives, unpacked in memory: what of them stands below a folder and is wanted, within bounds. They come from anybody.

mod layer;
mod meter;
mod path;
mod unpack;

use nudge_protocol::limits::MAX_DICTIONARY_BYTES;

pub use layer::Layer;
pub(crate) use layer::Node;
pub(crate) use path::{below, is_below, place};
pub use unpack::unpack;

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
    #[error("a layer of the artifact is not a tar archive, or is damaged")]
    Malformed,
    /// Something follows its end.
    #[error(
        "a layer of the artifact goes on after the end of its archive, and what is there would be missing; push it as one archive"
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
    /// A link is wanted.
    #[error(
        "{0} is a link in the artifact, and links are not followed; put the file itself there, or name another path"
    )]
    Link(String),
    /// Neither file nor folder.
    #[error("{0} is a device, a pipe or a sparse file in the artifact; put a regular file there")]
    NoFile(String),
    /// The name.
    #[error("the artifact has the path {0:?}, which is not UTF-8")]
    Name(String),
    /// The length.
    #[error("the artifact has the path {0:?}, which is too long, or in too many folders")]
    Deep(String),
    /// Too many entries.
    #[error("the artifact has more than {0} files, folders and links, which is the limit; push fewer")]
    TooMany(usize),
    /// Too long when decompressed.
    #[error("a layer of the artifact has more than {0} bytes when it is decompressed, which is the limit")]
    TooLong(u64),
    /// An entry with too much in front of it.
    #[error("a layer of the artifact has an entry whose headers have more than {0} bytes")]
    Header(u64),
    /// Too much content.
    #[error(
        "with {path}, the wanted files have more than {limit} bytes, which is the limit; name a path or files with fewer bytes"
    )]
    TooLarge {
        /// The file that was one too many.
        path: String,
        /// The bound.
        limit: usize,
    },
}

#[cfg(test)]
mod layer_tests;
#[cfg(test)]
mod unpack_tests;
