//! The content flags of `create`: files, directories, literals and env files, in the syntax of kubectl.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use nudge_protocol::error_chain::plain;

use crate::version::content::Content;
use crate::version::env_file;

/// The flags.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Sources {
    /// A file whose name, or KEY, is the key; or a directory of such files. Can be repeated
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

/// The key, if there is one, and the path of a `--from-file`.
fn file_source(text: &str) -> Result<(Option<&str>, &str), String> {
    match text.split_once('=') {
        None => Ok((None, text)),
        Some((_, path)) if path.contains('=') => Err(format!("{text}: a key or a path must not contain '='")),
        Some(("", path)) => Err(format!("={path}: the key is missing; write KEY={path}, or {path} alone")),
        Some((key, "")) => Err(format!("{key}=: the path is missing; write {key}=PATH")),
        Some((key, path)) => Ok((Some(key), path)),
    }
}

/// Key and value of a `--from-literal`. The error omits the text, which may be a secret.
fn literal(text: &str) -> Result<(&str, &str), String> {
    let wrong = || "the value is not KEY=VALUE".to_owned();
    text.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or_else(wrong)
}

/// Reads the content of all flags.
pub(crate) fn read(sources: &Sources) -> Result<Content, String> {
    let mut content = Content::default();
    let kinds = [
        ("", false, &sources.from_file, &sources.from_literal, &sources.from_env_file),
        ("secret-", true, &sources.secret_from_file, &sources.secret_from_literal, &sources.secret_from_env_file),
    ];
    for (prefix, secret, files, literals, env_files) in kinds {
        for text in files {
            from_file(&mut content, secret, text).map_err(|error| format!("--{prefix}from-file: {error}"))?;
        }
        for text in literals {
            let added =
                literal(text).and_then(|(key, value)| content.add(secret, key.to_owned(), value.as_bytes().to_vec()));
            added.map_err(|error| format!("--{prefix}from-literal: {error}"))?;
        }
        for path in env_files {
            from_env_file(&mut content, secret, path)
                .map_err(|error| format!("--{prefix}from-env-file {}: {error}", path.display()))?;
        }
    }
    content.check()?;
    Ok(content)
}

fn from_file(content: &mut Content, secret: bool, text: &str) -> Result<(), String> {
    let (key, path) = file_source(text)?;
    let path = Path::new(path);
    let fault = |path: &Path, error: &std::io::Error| format!("{}: {}", path.display(), plain(&error.to_string()));
    let about = fs::metadata(path).map_err(|error| fault(path, &error))?;
    if about.is_dir() {
        if key.is_some() {
            return Err(format!("{}: a directory can't have a key; each file in it is a key", path.display()));
        }
        for file in files(path).map_err(|error| fault(path, &error))? {
            let value = fs::read(&file).map_err(|error| fault(&file, &error))?;
            content.add(secret, file_name(&file)?, value)?;
        }
        return Ok(());
    }
    let key = key.map_or_else(|| file_name(path), |key| Ok(key.to_owned()))?;
    content.add(secret, key, fs::read(path).map_err(|error| fault(path, &error))?)
}

/// The regular files of a directory, as in kubectl: no links, no subdirectories.
fn files(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

fn file_name(path: &Path) -> Result<String, String> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.map(str::to_owned)
        .ok_or_else(|| format!("{}: the name of this file can't be a key; write KEY=PATH", path.display()))
}

fn from_env_file(content: &mut Content, secret: bool, path: &Path) -> Result<(), String> {
    let text = fs::read(path).map_err(|error| plain(&error.to_string()))?;
    for (key, value) in env_file::parse(&text, |name| std::env::var(name).ok())? {
        content.add(secret, key, value.into_bytes())?;
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
    fn a_directory_gives_its_files_without_links_and_subdirectories() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("b"), "2").unwrap();
        fs::write(path("a"), [0xff]).unwrap();
        fs::create_dir(path("sub")).unwrap();
        std::os::unix::fs::symlink(path("a"), path("link")).unwrap();
        fs::write(path("sub/env"), "PIN=7\n").unwrap();
        let sources = Sources {
            from_file: vec![directory.path().display().to_string(), format!("c={}", path("a").display())],
            secret_from_env_file: vec![path("sub/env")],
            ..Sources::default()
        };
        let content = read(&sources).unwrap();
        assert_eq!(content.open.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(content.secret["PIN"].as_slice(), b"7");
        let twice = Sources {
            from_file: vec![path("a").display().to_string()],
            from_literal: vec!["a=1".into()],
            ..Sources::default()
        };
        assert_eq!(read(&twice).err().unwrap(), "--from-literal: key a is given twice; omit one of them");
        let keyed = Sources { from_file: vec![format!("k={}", directory.path().display())], ..Sources::default() };
        assert!(read(&keyed).err().unwrap().contains("a directory can't have a key"));
    }
}
