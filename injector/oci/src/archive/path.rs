//! Paths within an archive.

use nudge_protocol::bounded_text::one_line;

use crate::archive::ArchiveError;

/// The most bytes of a path, and the most names in it.
const MAX_PATH_LENGTH: usize = 4096;
const DEEPEST: usize = 64;
/// The most bytes of a path that a message has.
const MAX_SHOWN_BYTES: usize = 200;

/// The folders that a path is in, the root among them.
pub(super) fn parents(path: &str) -> impl Iterator<Item = &str> {
    path.rmatch_indices('/').map(|(at, _)| &path[..at]).chain(std::iter::once(""))
}

/// Returns whether `path` is this folder, or in it.
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
    if text.len() > MAX_PATH_LENGTH || names.len() > DEEPEST {
        return Err(ArchiveError::Deep(shown(bytes)));
    }
    Ok((!names.is_empty()).then(|| names.join("/")))
}

/// On one line, for a message.
pub(super) fn shown(path: &[u8]) -> String {
    one_line(&String::from_utf8_lossy(&path[..path.len().min(MAX_SHOWN_BYTES)]), MAX_SHOWN_BYTES)
}
