//! `nudge-agent use` switches, and never to something that could not be served.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use nudge_protocol::limits::MAX_VALUE_BYTES;
use nudge_tests::{AgentUnderTest, ConfigDir, Finished};

use super::idle_agent::idle;

fn switch(dir: &ConfigDir, config: &str, version: &str) -> Result<Finished> {
    let arguments = [OsStr::new("use"), "--dir".as_ref(), dir.path().as_ref(), config.as_ref(), version.as_ref()];
    Finished::agent(arguments)
}

#[test]
fn use_switches_and_says_from_what_to_what() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    let switched = switch(&dir, "shop", "1.0.1")?;
    assert_eq!((switched.code, switched.stdout.as_str()), (Some(0), "shop: 1.0.0 -> 1.0.1\n"), "{switched:?}");
    let again = switch(&dir, "shop", "1.0.1")?;
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), "shop: 1.0.1 is current already\n"), "{again:?}");
    assert_eq!(fs::read_link(dir.path().join("shop/current"))?, Path::new("1.0.1"));
    Ok(())
}

#[test]
fn use_refuses_a_bad_version_and_leaves_current_as_it_was() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    fs::create_dir(dir.path().join("shop/empty"))?;
    dir.write_version("shop", "large", [("lives", vec![b'x'; MAX_VALUE_BYTES + 1])])?;
    for (version, code, part) in [
        ("9.9.9", 1, "there is no folder"),
        ("empty", 1, "the folder is empty"),
        ("large", 1, "more than 1048576 bytes"),
        ("current", 2, "'current' stands for"),
        ("..", 2, "it must be 1 to 63"),
        ("1.0.1/", 2, "it must be 1 to 63"),
        ("../shop/1.0.1", 2, "it must be 1 to 63"),
        ("", 2, "it must be 1 to 63"),
    ] {
        let refused = switch(&dir, "shop", version)?;
        assert_eq!(refused.code, Some(code), "{version}: {refused:?}");
        assert!(refused.stderr.contains(part), "{version}: {}", refused.stderr);
        assert_eq!(fs::read_link(dir.path().join("shop/current"))?, Path::new("1.0.0"), "{version}");
    }
    let unknown = switch(&dir, "nothing", "1.0.0")?;
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(unknown.stderr.contains("there is no folder"), "{}", unknown.stderr);
    Ok(())
}

#[test]
fn a_draft_that_a_killed_use_left_behind_does_no_harm() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    // `exec` keeps the process id, from which the draft has its name.
    let script = r#"ln -s 1.0.2 "$1/shop/..current-$$" && exec "$0" use --dir "$1" shop 1.0.1"#;
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(nudge_tests::binary::debug()?).arg(dir.path());
    let switched = Finished::of(&mut command)?;
    assert_eq!(switched.code, Some(0), "{switched:?}");
    assert_eq!(fs::read_link(dir.path().join("shop/current"))?, Path::new("1.0.1"));
    Ok(())
}

#[tokio::test]
async fn use_is_seen_by_a_running_agent() -> Result<()> {
    let mut agent = idle(AgentUnderTest::shop()?).await?;
    assert_eq!(switch(&agent.dir, "shop", "1.0.1")?.code, Some(0));
    agent.wait_until_served("shop=1.0.1").await
}

#[test]
fn many_uses_at_once_never_leave_a_broken_current() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    let current = dir.path().join("shop/current");
    let valid = || fs::read_link(&current).is_ok_and(|to| to.starts_with("1.0.0") || to.starts_with("1.0.1"));
    let program = nudge_tests::binary::debug()?;
    let spawn = |version: &str| {
        let mut command = Command::new(program);
        command.arg("use").arg("--dir").arg(dir.path()).args(["shop", version]);
        command.stdout(std::process::Stdio::null()).spawn()
    };
    let versions = ["1.0.0", "1.0.1"].into_iter().cycle();
    let mut running: Vec<_> = versions.take(20).map(spawn).collect::<std::io::Result<_>>()?;
    while !running.is_empty() {
        assert!(valid(), "{:?}", fs::read_link(&current));
        let mut failed = None;
        running.retain_mut(|child| match child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) => {
                failed = failed.take().or((!status.success()).then_some(status));
                false
            }
            Err(_) => false,
        });
        assert_eq!(failed, None);
    }
    assert!(valid());
    let mut names: Vec<_> =
        fs::read_dir(dir.path().join("shop"))?.map(|entry| Ok(entry?.file_name())).collect::<Result<_>>()?;
    names.sort();
    assert_eq!(names, ["1.0.0", "1.0.1", "1.0.2", "current"], "drafts are left");
    Ok(())
}
