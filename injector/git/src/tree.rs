//! Parses the output of `git ls-tree -z`.

use nudge_core::remote::is_object_id;

use crate::error::GitError;

/// The maximum number of entries below a path.
pub(crate) const MAX_ENTRIES: usize = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeEntryKind {
    /// A tree below the tree.
    Folder,
    File,
    /// A symbolic link.
    Symlink,
    /// A commit of another repository.
    Submodule,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    pub kind: TreeEntryKind,
    /// The id of the object.
    pub id: String,
    /// The path within the tree.
    pub path: String,
}

/// Parses the output of `git ls-tree -z`.
pub fn parse_entries(printed: &[u8]) -> Result<Vec<TreeEntry>, GitError> {
    let mut entries = Vec::new();
    for line in printed.split(|byte| *byte == 0).filter(|line| !line.is_empty()) {
        if entries.len() == MAX_ENTRIES {
            return Err(GitError::TooManyFiles(MAX_ENTRIES));
        }
        entries.push(parse_entry(line)?);
    }
    Ok(entries)
}

fn parse_entry(line: &[u8]) -> Result<TreeEntry, GitError> {
    let tab = line.iter().position(|byte| *byte == b'\t').ok_or(GitError::Broken)?;
    let metadata = std::str::from_utf8(&line[..tab]).map_err(|_| GitError::Broken)?;
    let path = std::str::from_utf8(&line[tab.saturating_add(1)..]).map_err(|_| GitError::FileName)?;
    let is_forbidden = |name: &str| {
        matches!(name, "" | "." | "..") || name.contains(|character: char| character.is_control() || character == '\\')
    };
    if path.split('/').any(is_forbidden) {
        return Err(GitError::FileName);
    }
    let mut metadata = metadata.split(' ');
    let (Some(mode), Some(_), Some(id)) = (metadata.next(), metadata.next(), metadata.next()) else {
        return Err(GitError::Broken);
    };
    // The id becomes an argument of git.
    if !is_object_id(id) {
        return Err(GitError::Broken);
    }
    let kind = match mode {
        "040000" => TreeEntryKind::Folder,
        "120000" => TreeEntryKind::Symlink,
        "160000" => TreeEntryKind::Submodule,
        _ if mode.starts_with("100") => TreeEntryKind::File,
        _ => return Err(GitError::Broken),
    };
    Ok(TreeEntry { kind, id: id.to_owned(), path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(about: &str, digit: char, path: &str) -> String {
        format!("{about} {}\t{path}\0", digit.to_string().repeat(40))
    }

    #[test]
    fn kinds_and_paths_are_read() {
        let listed = [
            ("100644 blob", '1', "a b/c", TreeEntryKind::File),
            ("120000 blob", '2', "d", TreeEntryKind::Symlink),
            ("160000 commit", '3', "e", TreeEntryKind::Submodule),
            ("040000 tree", '4', "f", TreeEntryKind::Folder),
        ];
        let text: String = listed.iter().map(|(about, digit, path, _)| line(about, *digit, path)).collect();
        let expected = listed.map(|(_, digit, path, kind)| TreeEntry {
            kind,
            id: digit.to_string().repeat(40),
            path: path.to_owned(),
        });
        assert_eq!(parse_entries(text.as_bytes()).unwrap(), expected);
    }

    #[test]
    fn no_name_leads_out_and_no_id_is_an_option() {
        for bad in ["../a", "a/../b", "/a", "a//b", "./a", "..", "a\nb", "a\\..\\b"] {
            let listed = line("100644 blob", '1', bad);
            assert!(matches!(parse_entries(listed.as_bytes()), Err(GitError::FileName)), "{bad:?}");
        }
        assert!(matches!(parse_entries(b"100644 blob 1\t\xff\0"), Err(GitError::FileName)));
        for bad in ["garbage\0", "100644 blob --help\ta\0", "100644 blob\ta\0", "100644 blob 1\ta\0"] {
            assert!(matches!(parse_entries(bad.as_bytes()), Err(GitError::Broken)), "{bad:?}");
        }
    }

    #[test]
    fn entries_are_counted() {
        let listed = line("100644 blob", '1', "a").repeat(MAX_ENTRIES);
        assert_eq!(parse_entries(listed.as_bytes()).unwrap().len(), MAX_ENTRIES);
        let listed = listed + &line("100644 blob", '1', "b");
        assert!(matches!(parse_entries(listed.as_bytes()), Err(GitError::TooManyFiles(MAX_ENTRIES))));
    }
}
