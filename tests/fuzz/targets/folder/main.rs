//! Whatever is in the folder, it is read without a panic, whole or not at all, and never from outside of it. The input
//! describes the folder ([`tree`]); two lines are not of the tree: `?` has it read in between, as it is by then, and `o
//! PATH` opens a path in it.
#![cfg_attr(fuzzing, no_main)]

mod tree;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Component, Path};

use libfuzzer_sys::fuzz_target;
use nudge_agent::content::VersionContent;
use nudge_agent::source::SourceFault;
use nudge_agent::source::dir::{ConfigReport, DirSource, Root, Scan, is_ignored};
use nudge_protocol::ConfigName;
use nudge_protocol::limits::MAX_VALUE_BYTES;
use nudge_protocol::status::ProblemReason;

use tree::Tree;

/// The text of all files next to the tree.
const SECRET: &str = "beside-the-tree";
/// Most times that one input has the tree read.
const MAX_READS: usize = 4;

fuzz_target!(|bytes: &[u8]| {
    let above = tempfile::tempdir().unwrap();
    plant(above.path());
    let mut tree = Tree::new(above.path());
    let mut source = DirSource::new(tree.root().to_owned(), None);
    let mut reads = 1;
    for line in bytes.split(|&byte| byte == b'\n') {
        if let Some(path) = line.strip_prefix(b"o ") {
            open(tree.root(), Path::new(OsStr::from_bytes(path)));
        } else if line == b"?" && reads < MAX_READS {
            reads += 1;
            read(tree.root(), &mut source);
        } else {
            let _ = tree.step(line);
        }
    }
    read(tree.root(), &mut source);
});

/// What must not be read: a file, a config that would be fine if it were in the tree, and a link's text.
fn plant(above: &Path) {
    fs::write(above.join("secret"), SECRET).unwrap();
    fs::create_dir_all(above.join("shop/1")).unwrap();
    fs::write(above.join("shop/1/k"), SECRET).unwrap();
    symlink("1", above.join("shop/current")).unwrap();
    fs::create_dir(above.join("odd")).unwrap();
    symlink(format!("{SECRET}/1"), above.join("odd/current")).unwrap();
}

fn read(root: &Path, source: &mut DirSource) {
    let scan = source.scan();
    let fresh = DirSource::new(root.to_owned(), None).scan();
    let mut ignored = Vec::new();
    let reports = ConfigReport::read_all(root, &mut ignored).unwrap();

    assert_no_secret(&scan.ignored);
    assert_no_secret(&ignored);
    assert_eq!(fresh.ignored, ignored);
    for folder in &scan.folders {
        let plain = |part: Component| matches!(part, Component::Normal(_));
        assert!(folder.components().all(plain) && folder.components().count() <= 3, "{}", folder.display());
    }
    for reading in &scan.readings {
        let now = result(&fresh, &reading.config);
        match &reading.result {
            Ok(content) => {
                assert_content(root, &reading.config, content);
                assert_eq!(now, Some(Ok(content.digest())), "what was read before is what is there");
            }
            Err(fault) => {
                assert_no_secret(&[&fault.message]);
                // Configs that are gone still count.
                assert!(now.is_none_or(|now| now.is_err()) || fault.reason == ProblemReason::TooLarge);
            }
        }
    }
    assert_eq!(fresh.readings.len(), reports.len());
    for report in &reports {
        assert_report(root, report, &fresh);
    }
}

fn result<'a>(scan: &'a Scan, config: &ConfigName) -> Option<Result<&'a str, &'a SourceFault>> {
    let reading = scan.readings.iter().find(|reading| reading.config == *config)?;
    Some(reading.result.as_ref().map(|content| content.digest()))
}

/// `check` and the running agent say the same of a config.
fn assert_report(root: &Path, report: &ConfigReport, scan: &Scan) {
    assert_no_secret(&report.ignored);
    for (_, content) in &report.versions {
        match content {
            Ok(content) => assert_content(root, &report.config, content),
            Err(error) => assert_no_secret(&[error.to_string()]),
        }
    }
    let version = match &report.current {
        Ok(version) => version,
        Err(error) => return assert_fault(scan, report, &error.to_string()),
    };
    let reported = report.versions.iter().find(|(name, _)| name == version).map(|(_, content)| content);
    match reported {
        Some(Ok(content)) => match result(scan, &report.config).unwrap() {
            Ok(digest) => assert_eq!(digest, content.digest()),
            Err(fault) => assert!(fault.reason == ProblemReason::TooLarge, "only all configs together can be too much"),
        },
        Some(Err(error)) => assert_fault(scan, report, &error.to_string()),
        None => assert!(result(scan, &report.config).unwrap().is_err(), "a version that is not there can't be read"),
    }
}

fn assert_fault(scan: &Scan, report: &ConfigReport, message: &str) {
    assert_no_secret(&[message]);
    let fault = result(scan, &report.config).unwrap().unwrap_err();
    assert!(fault.message == message || fault.reason == ProblemReason::TooLarge, "{} / {message}", fault.message);
}

/// All of a version's files, with what stands in them, all in the tree.
fn assert_content(root: &Path, config: &ConfigName, content: &VersionContent) {
    let (config, version) = (root.join(config.as_str()), content.version().as_str());
    let checkout = Path::new(".worktrees").join(version);
    let is_checkout = fs::read_link(config.join("current")).is_ok_and(|target| target.ends_with(&checkout));
    let folder = config.join(if is_checkout { &checkout } else { Path::new(version) });
    let root = root.canonicalize().unwrap();
    let mut keys = BTreeSet::new();
    for (key, value) in content.values() {
        let file = folder.join(key.as_str());
        assert!(file.canonicalize().unwrap().starts_with(&root), "{}", file.display());
        assert!(value.as_bytes() == fs::read(&file).unwrap() && value.as_bytes().len() <= MAX_VALUE_BYTES);
        assert!(!holds_secret(value.as_bytes()));
        keys.insert(OsStr::new(key.as_str()).to_owned());
    }
    let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(keys, names.filter(|name| !is_ignored(name) && (!is_checkout || name != ".git")).collect(), "no key is left out");
    assert!(!keys.is_empty());
}

fn assert_no_secret(messages: &[impl AsRef<str>]) {
    for message in messages {
        assert!(!holds_secret(message.as_ref().as_bytes()), "{}", message.as_ref());
    }
}

fn holds_secret(bytes: &[u8]) -> bool {
    bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes())
}

/// What is opened by any path, however it winds, lies in the tree.
fn open(root: &Path, path: &Path) {
    let opened = Root::open(root).unwrap();
    let root = root.canonicalize().unwrap();
    if let Ok(file) = opened.open_file(path) {
        let real = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        assert!(real.starts_with(&root), "{}", real.display());
    }
    if let Ok(names) = opened.list(path) {
        let listed = root.join(path).canonicalize().unwrap();
        assert!(listed.starts_with(&root), "{}", listed.display());
        assert_eq!(names.len(), fs::read_dir(listed).unwrap().count());
    }
}
