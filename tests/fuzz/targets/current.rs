//! The content of a `current` file, and the target of a `current` link, names a version next to it, or in a checkout of
//! git-sync's there, or nothing. The input is the file's content; for the link it is the folder's path, a newline, and
//! the target.
#![cfg_attr(fuzzing, no_main)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use nudge_agent::source::dir::{CurrentVersion, parse_current_file, parse_current_link};

fuzz_target!(|bytes: &[u8]| {
    file(bytes);
    if let Some(at) = bytes.iter().position(|&byte| byte == b'\n') {
        link(&bytes[..at], &bytes[at + 1..]);
    }
});

fn file(content: &[u8]) {
    match parse_current_file(content) {
        Ok(current) => {
            assert_safe(&current);
            assert_eq!(std::str::from_utf8(content).unwrap().trim(), current.version.as_str());
            assert_eq!(current.folder.as_os_str(), current.version.as_str());
        }
        Err(error) => assert!(error.to_string().len() < 1000, "a refusal stays short"),
    }
}

fn link(folder: &[u8], target: &[u8]) {
    let path = |bytes| Path::new(OsStr::from_bytes(bytes));
    let parsed = parse_current_link(path(target), path(folder));
    // Only absolute paths of folders are ever asked about.
    if !folder.starts_with(b"/") {
        return;
    }
    if let Ok(current) = parsed {
        assert_safe(&current);
        let whole = if target.starts_with(b"/") { target.to_vec() } else { [folder, target].join(&b'/') };
        let mut expected = parts(folder);
        expected.extend(parts(current.folder.as_os_str().as_bytes()));
        assert_eq!(parts(&whole), expected, "the link leads to a folder beside it, or to a checkout there");
    }
}

/// The elements of a path without those that say nothing.
fn parts(path: &[u8]) -> Vec<&[u8]> {
    path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect()
}

fn assert_safe(current: &CurrentVersion) {
    let name = current.version.as_str();
    let folder = current.folder.as_path();
    assert!(folder == Path::new(name) || folder == Path::new(".worktrees").join(name));
    assert!(!name.is_empty() && name != "current" && !name.starts_with('.') && name.len() <= 63);
    assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)));
}
