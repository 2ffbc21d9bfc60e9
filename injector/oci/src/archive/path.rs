use nudge_protocol::bounded_text::one_line;

use crate::archive::ArchiveError;

/// The maximum bytes of a path.
const MAX_PATH_BYTES: usize = 4096;
/// The maximum number of names in a path.
const MAX_PATH_NAMES: usize = 64;
/// The maximum bytes of a path in a message.
const MAX_SHOWN_BYTES: usize = 200;

/// Returns the folders that contain a path, including the root.
pub(super) fn parents(path: &str) -> impl Iterator<Item = &str> {
    path.rmatch_indices('/').map(|(index, _)| &path[..index]).chain(std::iter::once(""))
}

/// Returns whether `path` is this folder or is in it.
pub(crate) fn is_below(path: &str, folder: &str) -> bool {
    folder.is_empty() || path.strip_prefix(folder).is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('/'))
}

/// Returns the path from `root` on, or the file's name if `root` is the file itself.
pub(crate) fn relative_to<'a>(path: &'a str, root: &str) -> Option<&'a str> {
    if path == root {
        return path.rsplit('/').next();
    }
    if root.is_empty() { Some(path) } else { path.strip_prefix(root)?.strip_prefix('/') }
}

/// Returns the path of an entry from the root of the archive, without `.` in it, or `None` for the root itself.
pub(crate) fn normalize_path(bytes: &[u8]) -> Result<Option<String>, ArchiveError> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| !text.chars().any(char::is_control));
    let text = text.ok_or_else(|| ArchiveError::Name(display_path(bytes)))?;
    let names: Vec<&str> = text.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
    if text.starts_with('/') || names.contains(&"..") {
        return Err(ArchiveError::Outside(display_path(bytes)));
    }
    if text.len() > MAX_PATH_BYTES || names.len() > MAX_PATH_NAMES {
        return Err(ArchiveError::Deep(display_path(bytes)));
    }
    Ok((!names.is_empty()).then(|| names.join("/")))
}

/// Returns the path on one line, for a message.
pub(super) fn display_path(path: &[u8]) -> String {
    one_line(&String::from_utf8_lossy(&path[..path.len().min(MAX_SHOWN_BYTES)]), MAX_SHOWN_BYTES)
}
