//! Programs that some tests need and that not every machine has.

use std::env;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// With this variable set to `1` a missing tool is a failure: for machines that are meant to run every test.
pub const REQUIRE: &str = "NUDGE_REQUIRE_TOOLS";

/// Names a file to which every skip adds a line.
pub const SKIPS: &str = "NUDGE_SKIPS";

/// Returns the path of a tool; without it the reason for skipping is printed, or it is an error where [`REQUIRE`] says
/// so.
pub fn find(tool: &str) -> Result<Option<PathBuf>> {
    let path = look(tool);
    if path.is_none() {
        missing(tool)?;
    }
    Ok(path)
}

/// Returns the path of a tool that a test can do without.
pub fn look(tool: &str) -> Option<PathBuf> {
    // Tools of the administrator are often not in other people's search path.
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(tool)).find(|file| file.is_file())
}

/// Says that a tool is missing: the reason for skipping is printed, or it is an error where [`REQUIRE`] says so.
pub fn missing(tool: &str) -> Result<()> {
    if env::var_os(REQUIRE).is_some_and(|value| value == "1") {
        bail!("{tool} is not installed");
    }
    skipped(&format!("{tool} is not installed"));
    Ok(())
}

/// Says why a test does nothing. Test runners keep what a passing test prints to themselves, so it is also noted in the
/// file that [`SKIPS`] names.
#[allow(clippy::print_stderr)] // for a person who runs the test alone
pub fn skipped(reason: &str) {
    let line = format!("SKIPPED: {reason}\n");
    eprint!("{line}");
    let noted = env::var_os(SKIPS).map(|file| OpenOptions::new().append(true).create(true).open(file));
    if let Some(Ok(mut file)) = noted {
        // One short write to the end: lines of parallel tests don't mix. A list that is full is no fault of the test.
        let _ = file.write_all(line.as_bytes());
    }
}

/// Returns a program of `tests/clients`.
pub fn client(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_found() {
        assert!(find("sh").unwrap().unwrap().is_absolute());
    }
}
