//! The names of files.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use nudge_tests::Finished;

/// Beside the folders `tests`, whose files are of tests anyway.
#[test]
fn files_with_tests_only_are_named_so() -> Result<()> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let listed = Finished::of(std::process::Command::new("git").current_dir(&repository).args(["ls-files", "*.rs"]))?;
    ensure!(listed.code == Some(0), "{}", listed.stderr);
    let mut wrong = Vec::new();
    for path in listed.stdout.lines() {
        // The first is the crate `tests`, or the folder of crates.
        let in_folder = path.split('/').skip(1).any(|folder| folder == "tests");
        // The name of a crate's root is given.
        if in_folder || path.ends_with("_tests.rs") || path.ends_with("/lib.rs") {
            continue;
        }
        // A module of tests inside of a file is indented. A file that is gone is not committed yet.
        let text = fs::read_to_string(repository.join(path)).unwrap_or_default();
        let is_test =
            |line: &str| ["#[test]", "#[tokio::test", "proptest! {"].iter().any(|mark| line.starts_with(mark));
        if text.lines().any(is_test) {
            wrong.push(path);
        }
    }
    ensure!(wrong.is_empty(), "files with tests only, which must be named *_tests.rs: {wrong:?}");
    Ok(())
}
