//! Files become keys: a key is the path of its file, with `.` for each `/`.

use std::collections::BTreeMap;

use nudge_core::versions::Contents;
use zeroize::Zeroizing;

/// The error about two files that would become the same key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the files {0} and {1} both become the key {2}; rename one of them, or leave it out")]
pub struct FilesError(String, String, String);

/// Returns the key of a file: its path, with `.` in place of `/`.
pub fn file_key(path: &str) -> String {
    path.replace('/', ".")
}

/// Returns the contents of files by their keys.
pub fn keys_of_files(files: BTreeMap<String, Zeroizing<Vec<u8>>>) -> Result<Contents, FilesError> {
    let (mut contents, mut paths) = (Contents::new(), BTreeMap::new());
    for (path, content) in files {
        let key = file_key(&path);
        if let Some(other) = paths.insert(key.clone(), path.clone()) {
            return Err(FilesError(other, path, key));
        }
        contents.insert(key, content);
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: &[&str]) -> BTreeMap<String, Zeroizing<Vec<u8>>> {
        paths.iter().map(|path| ((*path).to_owned(), Zeroizing::new(path.as_bytes().to_vec()))).collect()
    }

    #[test]
    fn a_key_is_the_path_with_dots() {
        let contents = keys_of_files(files(&["app.yaml", "db/pool/size"])).unwrap();
        assert_eq!(contents.keys().collect::<Vec<_>>(), ["app.yaml", "db.pool.size"]);
        let error = keys_of_files(files(&["db.size", "db/size"])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the files db.size and db/size both become the key db.size; rename one of them, or leave it out"
        );
    }
}
