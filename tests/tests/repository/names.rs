//! The names of files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use nudge_tests::Finished;

/// Returns all tracked Rust files with their texts.
fn sources() -> Result<BTreeMap<String, String>> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let listed = Finished::of(Command::new("git").current_dir(&repository).args(["ls-files", "*.rs"]))?;
    ensure!(listed.code == Some(0), "{}", listed.stderr);
    // A file that is gone is not committed yet.
    let read = |path: &str| Some((path.to_owned(), fs::read_to_string(repository.join(path)).ok()?));
    Ok(listed.stdout.lines().filter_map(read).collect())
}

/// Beside the folders `tests`, whose files are of tests anyway.
#[test]
fn files_with_tests_only_are_named_so() -> Result<()> {
    let mut wrong = Vec::new();
    for (path, text) in sources()? {
        // The first is the crate `tests`, or the folder of crates.
        let in_folder = path.split('/').skip(1).any(|folder| folder == "tests");
        // The name of a crate's root is given.
        if in_folder || path.ends_with("_tests.rs") || path.ends_with("/lib.rs") {
            continue;
        }
        // A module of tests inside of a file is indented.
        let is_test =
            |line: &str| ["#[test]", "#[tokio::test", "proptest! {"].iter().any(|mark| line.starts_with(mark));
        if text.lines().any(is_test) {
            wrong.push(path);
        }
    }
    ensure!(wrong.is_empty(), "files with tests only, which must be named *_tests.rs: {wrong:?}");
    Ok(())
}

/// A file that no module names is not compiled, and nobody sees that.
#[test]
fn every_file_below_src_is_a_module() -> Result<()> {
    let files = sources()?;
    let names_module = |file: &str, module: &str| {
        let is_named = |line: &str| {
            let named = line.trim().strip_suffix(';').and_then(|line| line.rsplit_once("mod "));
            named.is_some_and(|(_, name)| name == module)
        };
        files.get(file).is_some_and(|text| text.lines().any(is_named))
    };
    let mut unnamed = Vec::new();
    for path in files.keys().filter(|path| path.contains("/src/") && !path.contains("/src/bin/")) {
        let (folder, name) = path.rsplit_once('/').unwrap_or_default();
        let (folder, module) = match name.trim_end_matches(".rs") {
            "lib" | "main" => continue,
            "mod" => folder.rsplit_once('/').unwrap_or_default(),
            stem => (folder, stem),
        };
        let parents = ["/lib.rs", "/main.rs", "/mod.rs", ".rs"].map(|end| format!("{folder}{end}"));
        let by_path = format!("#[path = \"{name}\"]");
        let is_named = parents.iter().any(|parent| names_module(parent, module))
            || files.iter().any(|(other, text)| other.starts_with(folder) && text.contains(&by_path));
        if !is_named {
            unnamed.push(path);
        }
    }
    ensure!(unnamed.is_empty(), "files that no module names: {unnamed:?}");
    Ok(())
}

/// The head of a file with modules says what each of them does: `` `retry` decides … ``, or names it in parentheses.
#[test]
fn modules_that_a_head_names_exist() -> Result<()> {
    let has_word = |line: &str, name: &str| {
        line.split(|letter: char| !letter.is_alphanumeric() && letter != '_').any(|w| w == name)
    };
    let mut missing = Vec::new();
    for (path, text) in sources()? {
        let head: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("//!")).collect();
        let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        if !code.iter().any(|line| line.ends_with(';') && has_word(line, "mod")) {
            continue;
        }
        let head = head.concat();
        let pieces: Vec<&str> = head.split('`').collect();
        for piece in pieces.windows(3).step_by(2) {
            let (before, name, after) = (piece[0].trim_end(), piece[1], piece[2]);
            let begins = before.is_empty() || before.ends_with(['.', ';', ':', ',']);
            let verb = after.strip_prefix(' ').and_then(|after| after.split(' ').next());
            let is_described = begins && verb.is_some_and(|verb| verb.ends_with('s'));
            let is_explained = before.ends_with('(') && after.starts_with(')');
            let is_module = name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_');
            let is_crate = name.starts_with("nudge_");
            if (is_described || is_explained) && is_module && !is_crate && !code.iter().any(|line| has_word(line, name))
            {
                missing.push(format!("{path}: `{name}`"));
            }
        }
    }
    ensure!(missing.is_empty(), "modules that a head names, and that the file does not have: {missing:?}");
    Ok(())
}
