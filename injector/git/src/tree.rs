//! What `git ls-tree -z` prints.

use crate::error::GitError;

/// The most entries below a path.
pub(crate) const MOST_ENTRIES: usize = 10_000;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Folder,
    File,
    Symlink,
    Submodule,
}

/// An entry of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) id: String,
    pub(crate) path: String,
}

/// Reads all entries.
pub(crate) fn entries(listed: &[u8]) -> Result<Vec<Entry>, GitError> {
    let mut entries = Vec::new();
    for line in listed.split(|byte| *byte == 0).filter(|line| !line.is_empty()) {
        if entries.len() == MOST_ENTRIES {
            return Err(GitError::TooManyFiles(MOST_ENTRIES));
        }
        entries.push(entry(line)?);
    }
    Ok(entries)
}

fn entry(line: &[u8]) -> Result<Entry, GitError> {
    let tab = line.iter().position(|byte| *byte == b'\t').ok_or(GitError::Broken)?;
    let about = std::str::from_utf8(&line[..tab]).map_err(|_| GitError::Broken)?;
    let path = std::str::from_utf8(&line[tab + 1..]).map_err(|_| GitError::FileName)?;
    let bad = |name: &str| matches!(name, "" | "." | "..") || name.contains(|it: char| it.is_control() || it == '\\');
    if path.split('/').any(bad) {
        return Err(GitError::FileName);
    }
    let mut about = about.split(' ');
    let (Some(mode), Some(_), Some(id)) = (about.next(), about.next(), about.next()) else {
        return Err(GitError::Broken);
    };
    let kind = match mode {
        "040000" => Kind::Folder,
        "120000" => Kind::Symlink,
        "160000" => Kind::Submodule,
        _ if mode.starts_with("100") => Kind::File,
        _ => return Err(GitError::Broken),
    };
    Ok(Entry { kind, id: id.to_owned(), path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_paths_are_read() {
        let listed = b"100644 blob 1\ta b/c\x00120000 blob 2\td\x00160000 commit 3\te\x00040000 tree 4\tf\0";
        let read: Vec<_> = entries(listed).unwrap().into_iter().map(|it| (it.kind, it.id, it.path)).collect();
        let expected = [
            (Kind::File, "1", "a b/c"),
            (Kind::Symlink, "2", "d"),
            (Kind::Submodule, "3", "e"),
            (Kind::Folder, "4", "f"),
        ];
        assert_eq!(read, expected.map(|(kind, id, path)| (kind, id.to_owned(), path.to_owned())));
    }

    #[test]
    fn no_name_leads_out() {
        for bad in ["../a", "a/../b", "/a", "a//b", "./a", "..", "a\nb", "a\\..\\b"] {
            let listed = format!("100644 blob 1\t{bad}\0");
            assert!(matches!(entries(listed.as_bytes()), Err(GitError::FileName)), "{bad:?}");
        }
        assert!(matches!(entries(b"100644 blob 1\t\xff\0"), Err(GitError::FileName)));
        assert!(matches!(entries(b"garbage\0"), Err(GitError::Broken)));
    }

    #[test]
    fn entries_are_counted() {
        let listed = "100644 blob 1\ta\0".repeat(MOST_ENTRIES);
        assert_eq!(entries(listed.as_bytes()).unwrap().len(), MOST_ENTRIES);
        let listed = listed + "100644 blob 1\tb\0";
        assert!(matches!(entries(listed.as_bytes()), Err(GitError::TooManyFiles(MOST_ENTRIES))));
    }
}
