//! The texts of errors: one list, and the rules that hold for all of them.
//!
//! `NUDGE_MESSAGES=1 cargo test -p nudge-tests --test repository messages -- --nocapture` prints the list, to be read.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// The longest text, as it stands in the source.
const MAX_CHARACTERS: usize = 220;
const FORBIDDEN: [&str; 6] = ["  ", "please", "sorry", "oops", "within none", "of before"];

struct Message {
    file: PathBuf,
    line: usize,
    text: String,
}

/// Adds the product's Rust files below a folder.
fn add_sources(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if !matches!(&*name, "tests" | "benches" | "target") {
                add_sources(&path, files)?;
            }
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// The text of a literal that begins behind its first quote.
fn literal(source: &str) -> Option<&str> {
    let mut escaped = false;
    let end = source.find(|letter| {
        let ends = letter == '"' && !escaped;
        escaped = letter == '\\' && !escaped;
        ends
    })?;
    source.get(..end)
}

/// The texts of `#[error("…")]` in a source.
fn messages(file: &Path, source: &str) -> Vec<Message> {
    const START: &str = "#[error(\"";
    let starts = source.match_indices(START);
    let texts = starts.filter_map(|(at, _)| {
        let text = literal(source.get(at + START.len()..)?)?.to_owned();
        Some(Message { file: file.to_owned(), line: source.get(..at)?.matches('\n').count() + 1, text })
    });
    texts.collect()
}

fn fault(text: &str) -> Option<String> {
    if let Some(phrase) = FORBIDDEN.iter().find(|phrase| text.to_lowercase().contains(**phrase)) {
        return Some(format!("has {phrase:?}"));
    }
    if text.ends_with(['.', '!', ' ', ';']) {
        return Some("ends with a period, a space or the like".to_owned());
    }
    let characters = text.chars().count();
    (characters > MAX_CHARACTERS).then(|| format!("has {characters} characters of at most {MAX_CHARACTERS}"))
}

#[test]
fn messages_of_errors_follow_the_rules() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no folder above")?;
    let mut files = Vec::new();
    for folder in ["agent", "injector"] {
        add_sources(&root.join(folder), &mut files)?;
    }
    files.sort();
    let mut list = Vec::new();
    for path in &files {
        list.extend(messages(path.strip_prefix(root)?, &std::fs::read_to_string(path)?));
    }
    ensure!(list.len() > 300, "only {} messages were collected", list.len());
    if std::env::var_os("NUDGE_MESSAGES").is_some() {
        for Message { file, line, text } in &list {
            println!("{}:{line}: {text}", file.display());
        }
    }
    let faults = list.iter().filter_map(|Message { file, line, text }| {
        Some(format!("{}:{line}: {text:?} {}", file.display(), fault(text)?))
    });
    let faults: Vec<String> = faults.collect();
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

#[test]
fn each_rule_refuses_what_it_is_for() {
    for text in ["a thing.", "two  spaces", "Please wait", "is within none of before", "a".repeat(221).as_str()] {
        assert!(fault(text).is_some(), "{text}");
    }
    assert_eq!(fault("config {0} does not exist; create it"), None);
}
