//! Tests of folders as other programs lay them out.

use std::fs;
use std::os::unix::fs::symlink;

use super::*;

/// Creates a folder with config `shop`, with this link `current` and a folder for each of these versions in it.
fn folder(current: &str, versions: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let shop = folder.path().join("shop");
    for version in versions {
        fs::create_dir_all(shop.join(version)).unwrap();
        fs::write(shop.join(version).join("lives"), version).unwrap();
    }
    symlink(current, shop.join("current")).unwrap();
    folder
}

/// Returns the version that is read, and its value.
fn read_first(source: &mut DirSource) -> Result<(String, String), String> {
    let reading = source.scan().readings.remove(0);
    let content = reading.result.map_err(|fault| fault.message)?;
    let value = content.values().values().next().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    Ok((content.version().to_string(), value.unwrap_or_default()))
}

#[test]
fn a_checkout_of_git_sync_is_a_version() {
    // Version 4 keeps a worktree for each commit, and a link to the newest.
    let (first, second) = ("9a3f0c", "b77e21");
    let [old, new] = [first, second].map(|hash| format!(".worktrees/{hash}"));
    let folder = folder(&old, &[&old, &new]);
    fs::write(folder.path().join("shop").join(&old).join(".git"), "gitdir: /x").unwrap();
    let mut source = DirSource::new(folder.path().to_owned(), None);
    assert_eq!(read_first(&mut source), Ok((first.to_owned(), old)));
    let scan = source.scan();
    assert!(scan.folders.contains(Path::new("shop/.worktrees/9a3f0c")), "its files are watched: {:?}", scan.folders);

    let link = folder.path().join("shop/current");
    symlink(&new, link.with_extension("tmp")).unwrap();
    fs::rename(link.with_extension("tmp"), &link).unwrap();
    assert_eq!(read_first(&mut source), Ok((second.to_owned(), new)));

    let report = ConfigReport::read_all(folder.path(), &mut Vec::new()).unwrap().remove(0);
    let versions: Vec<_> =
        report.versions.iter().map(|(version, content)| (version.as_str(), content.is_ok())).collect();
    assert_eq!(versions, [(second, true)], "what is current is checked");
}

#[test]
fn a_link_leads_no_further_than_a_checkout_of_the_config() {
    for current in ["../keys/1", ".worktrees", ".worktrees/..", ".worktrees/a/b", ".worktrees/../../keys/1", "a/b"] {
        let folder = folder(current, &[".worktrees/a/b", "a/b", "../keys/1"]);
        let message =
            read_first(&mut DirSource::new(folder.path().to_owned(), Some(vec![ConfigName::new("shop").unwrap()])));
        assert!(message.is_err(), "{current}: {message:?}");
    }
    // A worktree that is itself a link out of the folder.
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("lives"), "9").unwrap();
    let folder = folder(".worktrees/a", &[".worktrees/b"]);
    symlink(outside.path(), folder.path().join("shop/.worktrees/a")).unwrap();
    let message = read_first(&mut DirSource::new(folder.path().to_owned(), None)).unwrap_err();
    assert!(message.contains("can't be used"), "{message}");
}
