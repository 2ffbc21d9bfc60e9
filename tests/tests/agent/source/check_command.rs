//! `nudge-agent check` reports everything that is wrong with a folder.

use std::ffi::OsStr;
use std::fs;

use anyhow::Result;
use nudge_tests::{AgentUnderTest, ConfigDir, Finished};

fn check(dir: &ConfigDir) -> Result<Finished> {
    Finished::agent([OsStr::new("check"), "--dir".as_ref(), dir.path().as_ref()])
}

#[test]
fn check_lists_what_is_there_and_says_that_all_is_well() -> Result<()> {
    let checked = check(&AgentUnderTest::shop()?)?;
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(checked.stdout.contains("  current  1.0.0  1 key, 1 byte\n"), "{}", checked.stdout);
    assert!(checked.stdout.contains("           1.0.1  1 key, 1 byte\n"), "{}", checked.stdout);
    assert!(checked.stdout.ends_with("all is well\n"), "{}", checked.stdout);
    assert_eq!(checked.stderr, "");
    Ok(())
}

#[test]
fn check_says_all_that_is_wrong_and_fails() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    dir.switch("shop", "9.9.9")?;
    dir.write_version("shop", "-bad-", [("lives", "hunter2")])?;
    let version = dir.write_version("shop", "2.0.0", [("nudge.mine", "hunter2")])?;
    fs::create_dir(version.join("folder"))?;
    fs::create_dir(dir.path().join("shop/empty"))?;
    fs::create_dir(dir.path().join("UPPER"))?;
    fs::create_dir(dir.path().join("none"))?;
    let checked = check(&dir)?;
    assert_eq!(checked.code, Some(1), "{checked:?}");
    for part in [
        "version 9.9.9 is current, but there is no folder",
        r#"version "-bad-" is not allowed"#,
        "nudge.mine",
        "folder is a folder",
        "the folder is empty",
        r#"config "UPPER" is not allowed"#,
        "no version of none is current",
        "6 problems\n",
    ] {
        assert!(checked.stdout.contains(part), "{part}: {}", checked.stdout);
    }
    assert!(!checked.stdout.contains("hunter2"), "a value is printed: {}", checked.stdout);
    Ok(())
}

#[test]
fn check_notes_a_key_that_is_hidden_and_is_content() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    dir.write_version("extra", "7", [("lives", "99")])?;
    dir.switch("extra", "7")?;
    let checked = check(&dir)?;
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(checked.stdout.contains("key lives of extra is hidden by shop"), "{}", checked.stdout);
    Ok(())
}

#[test]
fn check_refuses_a_folder_that_is_empty_or_not_there() -> Result<()> {
    let dir = ConfigDir::new()?;
    let empty = check(&dir)?;
    assert_eq!(empty.code, Some(1), "{empty:?}");
    assert!(empty.stdout.contains("holds no config"), "{}", empty.stdout);
    fs::remove_dir(dir.path())?;
    let missing = check(&dir)?;
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert!(missing.stderr.contains("can't be opened"), "{}", missing.stderr);
    Ok(())
}
