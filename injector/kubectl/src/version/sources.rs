//! The content flags of `create`: files, directories, literals and env files, in the syntax of kubectl.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use nudge_authoring::{Content, ContentError};
use nudge_protocol::error_chain::without_os_code;
use nudge_protocol::limits::MAX_KEYS;
use zeroize::Zeroizing;

use crate::failure::file_message;
use crate::version::env_file;

/// The maximum number of files of a directory: a version has no more keys.
const MAX_FILES: usize = MAX_KEYS;
/// The maximum depth of a directory's folders.
const MAX_DEPTH: usize = 16;

/// The flags of `create` about files and literals.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Sources {
    /// A file whose name, or KEY, is the key; or a directory of such files, where sub/file has the key sub.file. Can be
    /// repeated
    #[arg(long, value_name = "[KEY=]PATH", help_heading = "Content")]
    pub(crate) from_file: Vec<String>,
    /// A key and its value. Can be repeated
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Content")]
    pub(crate) from_literal: Vec<String>,
    /// A file of KEY=VALUE lines. Can be repeated
    #[arg(long, value_name = "FILE", help_heading = "Content")]
    pub(crate) from_env_file: Vec<PathBuf>,
    /// Like --from-file, kept in a Secret
    #[arg(long, value_name = "[KEY=]PATH", help_heading = "Content")]
    pub(crate) secret_from_file: Vec<String>,
    /// Like --from-literal, kept in a Secret
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Content")]
    pub(crate) secret_from_literal: Vec<String>,
    /// Like --from-env-file, kept in a Secret
    #[arg(long, value_name = "FILE", help_heading = "Content")]
    pub(crate) secret_from_env_file: Vec<PathBuf>,
}

/// Parses the optional key and the path of a `--from-file`.
fn file_source(text: &str) -> Result<(Option<&str>, &str), String> {
    match text.split_once('=') {
        None => Ok((None, text)),
        Some((_, path)) if path.contains('=') => Err(format!("{text}: a key or a path must not contain '='")),
        Some(("", path)) => Err(format!("={path}: the key is missing; write KEY={path}, or {path} alone")),
        Some((key, "")) => Err(format!("{key}=: the path is missing; write {key}=PATH")),
        Some((key, path)) => Ok((Some(key), path)),
    }
}

/// Parses the key and the value of a `--from-literal`. The error omits the text, which may be a secret.
fn literal(text: &str) -> Result<(&str, &str), String> {
    let error = || "the value is not KEY=VALUE".to_owned();
    text.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or_else(error)
}

/// Reads the content of all flags.
pub(crate) fn read(sources: &Sources) -> Result<Content, String> {
    let mut content = Content::default();
    add(&mut content, sources)?;
    check(&content)?;
    Ok(content)
}

/// Adds the content of all flags.
pub(crate) fn add(content: &mut Content, sources: &Sources) -> Result<(), String> {
    let kinds = [
        ("", false, &sources.from_file, &sources.from_literal, &sources.from_env_file),
        ("secret-", true, &sources.secret_from_file, &sources.secret_from_literal, &sources.secret_from_env_file),
    ];
    for (prefix, is_secret, files, literals, env_files) in kinds {
        for text in files {
            from_file(content, is_secret, text).map_err(|error| format!("--{prefix}from-file: {error}"))?;
        }
        for text in literals {
            let result = literal(text).and_then(|(key, value)| {
                content.add(is_secret, key.to_owned(), value.as_bytes().to_vec()).map_err(|error| error.to_string())
            });
            result.map_err(|error| format!("--{prefix}from-literal: {error}"))?;
        }
        for path in env_files {
            from_env_file(content, is_secret, path)
                .map_err(|error| format!("--{prefix}from-env-file {}: {error}", path.display()))?;
        }
    }
    Ok(())
}

/// Checks the limits of a version.
pub(crate) fn check(content: &Content) -> Result<(), String> {
    match content.check() {
        Ok(()) => Ok(()),
        Err(ContentError::Empty) => {
            Err(format!("{}; use --from-file, --from-literal or --from-env-file", ContentError::Empty))
        }
        Err(error) => Err(error.to_string()),
    }
}

fn from_file(content: &mut Content, is_secret: bool, text: &str) -> Result<(), String> {
    let (key, path) = file_source(text)?;
    let path = Path::new(path);
    let metadata = fs::metadata(path).map_err(|error| file_message(path, &error))?;
    let mut add = |key: String, file: &Path| {
        let value = fs::read(file).map_err(|error| file_message(file, &error))?;
        content.add(is_secret, key, value).map_err(|error| error.to_string())
    };
    if !metadata.is_dir() {
        return add(key.map_or_else(|| file_name(path), |key| Ok(key.to_owned()))?, path);
    }
    if key.is_some() {
        return Err(format!("{}: a directory can't have a key; each file in it is a key", path.display()));
    }
    for file in files(path)? {
        add(folder_key(path, &file)?, &file)?;
    }
    Ok(())
}

/// Reads one file, `KEY=PATH` or `PATH`. Returns the key with the content.
pub(crate) fn read_file(text: &str) -> Result<(String, Zeroizing<Vec<u8>>), String> {
    let (key, path) = file_source(text)?;
    let path = Path::new(path);
    let value = fs::read(path).map_err(|error| file_message(path, &error))?;
    Ok((key.map_or_else(|| file_name(path), |key| Ok(key.to_owned()))?, Zeroizing::new(value)))
}

/// Lists the regular files of a directory and of its folders. Does not follow links, and leaves out names that begin
/// with a dot, such as the folders of Git, editors and the kubelet.
pub(crate) fn files(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let (mut files, mut folders) = (Vec::new(), vec![(directory.to_owned(), 0)]);
    while let Some((folder, depth)) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(|error| file_message(&folder, &error))? {
            let entry = entry.map_err(|error| file_message(&folder, &error))?;
            let (path, kind) = (entry.path(), entry.file_type().map_err(|error| file_message(&entry.path(), &error))?);
            let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            if kind.is_dir() && !is_hidden {
                if depth == MAX_DEPTH {
                    return Err(format!("{}: folders are read {MAX_DEPTH} levels deep", path.display()));
                }
                folders.push((path, depth + 1));
            } else if kind.is_file() && (depth == 0 || !is_hidden) {
                files.push(path);
            }
            if files.len() + folders.len() > MAX_FILES {
                return Err(format!("{}: it has more than {MAX_FILES} files and folders", directory.display()));
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the key of a file in a folder: its path from there, with a dot between names.
fn folder_key(folder: &Path, file: &Path) -> Result<String, String> {
    let names = file.strip_prefix(folder).ok().map(|path| path.iter().map(|name| name.to_str()).collect());
    let names: Option<Option<Vec<&str>>> = names;
    names
        .flatten()
        .map(|names| names.join("."))
        .ok_or_else(|| format!("{}: the name of this file can't be a key; give it with KEY=PATH", file.display()))
}

fn file_name(path: &Path) -> Result<String, String> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.map(str::to_owned)
        .ok_or_else(|| format!("{}: the name of this file can't be a key; write KEY=PATH", path.display()))
}

fn from_env_file(content: &mut Content, is_secret: bool, path: &Path) -> Result<(), String> {
    let text = fs::read(path).map_err(|error| without_os_code(&error.to_string()))?;
    for (key, value) in env_file::parse(&text, |name| std::env::var(name).ok())? {
        content.add(is_secret, key, value.into_bytes()).map_err(|error| error.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_can_have_a_key() {
        assert_eq!(file_source("a/b.conf"), Ok((None, "a/b.conf")));
        assert_eq!(file_source("c=a/b.conf"), Ok((Some("c"), "a/b.conf")));
        for bad in ["=a", "a=", "a=b=c"] {
            assert!(file_source(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_literal_is_split_at_the_first_sign_and_never_shown() {
        assert_eq!(literal("a=b=c"), Ok(("a", "b=c")));
        assert_eq!(literal("a="), Ok(("a", "")));
        for bad in ["=hidden", "hidden"] {
            assert!(!literal(bad).unwrap_err().contains("hidden"), "{bad}");
        }
    }

    #[test]
    fn a_directory_gives_its_files_and_those_of_its_folders_without_links() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("b"), "2").unwrap();
        fs::write(path("a"), [0xff]).unwrap();
        fs::create_dir(path("sub")).unwrap();
        std::os::unix::fs::symlink(path("a"), path("link")).unwrap();
        fs::write(path("sub/env"), "PIN=7\n").unwrap();
        fs::create_dir_all(path("sub/sub")).unwrap();
        fs::write(path("sub/sub/x"), "3").unwrap();
        for hidden in [".git", "sub/..data"] {
            fs::create_dir(path(hidden)).unwrap();
            fs::write(path(hidden).join("HEAD"), "4").unwrap();
        }
        let sources = Sources {
            from_file: vec![directory.path().display().to_string(), format!("c={}", path("a").display())],
            secret_from_env_file: vec![path("sub/env")],
            ..Sources::default()
        };
        let content = read(&sources).unwrap();
        assert_eq!(content.open.keys().collect::<Vec<_>>(), ["a", "b", "c", "sub.env", "sub.sub.x"]);
        assert_eq!(content.secret["PIN"].as_slice(), b"7");
        let twice = Sources {
            from_file: vec![path("a").display().to_string()],
            from_literal: vec!["a=1".into()],
            ..Sources::default()
        };
        assert_eq!(read(&twice).err().unwrap(), "--from-literal: key a is given twice; omit one of them");
        fs::write(path("sub.env"), "5").unwrap();
        assert!(read(&sources).err().unwrap().contains("key sub.env is given twice"));
        fs::create_dir_all(path(&"deep/".repeat(MAX_DEPTH + 1))).unwrap();
        assert!(read(&sources).err().unwrap().contains("levels deep"));
        let keyed = Sources { from_file: vec![format!("k={}", directory.path().display())], ..Sources::default() };
        assert!(read(&keyed).err().unwrap().contains("a directory can't have a key"));
    }
}
