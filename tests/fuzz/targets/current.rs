//! What a `current` file holds, and where a `current` link points, names a version beside it or nothing.
//! The input is the file's content; for the link it is the folder's path, a newline, and the target.
#![cfg_attr(fuzzing, no_main)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use nudge_agent::source::dir::{parse_current_file, parse_current_link};
use nudge_protocol::VersionName;

fuzz_target!(|bytes: &[u8]| {
    file(bytes);
    if let Some(at) = bytes.iter().position(|&byte| byte == b'\n') {
        link(&bytes[..at], &bytes[at + 1..]);
    }
});

fn file(content: &[u8]) {
    match parse_current_file(content) {
        Ok(version) => {
            assert_safe(&version);
            assert_eq!(std::str::from_utf8(content).unwrap().trim(), version.as_str());
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
    if let Ok(version) = parsed {
        assert_safe(&version);
        let whole = if target.starts_with(b"/") { target.to_vec() } else { [folder, target].join(&b'/') };
        let mut expected = parts(folder);
        expected.push(version.as_str().as_bytes());
        assert_eq!(parts(&whole), expected, "the link leads to a folder beside it");
    }
}

/// The elements of a path without those that say nothing.
fn parts(path: &[u8]) -> Vec<&[u8]> {
    path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect()
}

fn assert_safe(version: &VersionName) {
    let name = version.as_str();
    assert!(!name.is_empty() && name != "current" && !name.starts_with('.') && name.len() <= 63);
    assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)));
}
