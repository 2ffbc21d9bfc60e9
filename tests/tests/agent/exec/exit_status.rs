//! The exit status is the child's, or shows which failure it was.

use std::fs;

use anyhow::{Context, Result, ensure};
use nudge_tests::{AgentUnderTest, Finished};

use super::exec_command::{exec, exec_at, run};

#[test]
fn the_exit_status_is_the_childs() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    for (script, code) in [
        ("exit 0", 0),
        ("exit 1", 1),
        ("exit 125", 125),
        ("exit 255", 255),
        ("kill -TERM $$", 143),
        ("kill -KILL $$", 137),
        ("kill -34 $$", 162),
    ] {
        assert_eq!(run(&dir, &["sh", "-c", script])?.code, Some(code), "{script}");
    }
    Ok(())
}

#[test]
fn a_command_that_is_not_there_is_127_and_one_that_cannot_run_is_126() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    let file = dir.beside("not-executable");
    fs::write(&file, "")?;
    let file = file.to_str().context("odd path")?;
    for (command, code, part) in [
        ("no-such-command", 127, r#"command "no-such-command" was not found"#),
        ("/no/such/command", 127, "was not found"),
        (file, 126, "can't be run: Permission denied"),
        ("/", 126, "can't be run"),
    ] {
        let finished = run(&dir, &[command])?;
        assert_eq!(finished.code, Some(code), "{command}: {finished:?}");
        assert!(finished.stderr.contains(part), "{command}: {}", finished.stderr);
    }
    Ok(())
}

#[test]
fn a_failure_of_the_agent_itself_is_125_and_the_command_does_not_start() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    let marker = dir.beside("started");
    let start = |arguments: &[&str]| -> Result<Finished> {
        let finished = Finished::of(exec(&dir)?.args(arguments).args(["--", "touch"]).arg(&marker))?;
        ensure!(!marker.exists(), "{arguments:?}: the command has started");
        Ok(finished)
    };
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let port = taken.local_addr()?.port().to_string();
    for (arguments, part) in [
        (&["--config", "nothing"][..], "there is no folder"),
        (&["--webhook", "http://192.0.2.1/"], "is not in this pod"),
        (&["--mount-path", "/proc/no-such-folder"], "could not be written"),
        (&["--notify", "SIGKILL"], "choose one of SIGUSR1"),
        (&["--no-such-flag"], "--no-such-flag"),
    ] {
        let finished = start(arguments)?;
        assert_eq!(finished.code, Some(125), "{arguments:?}: {finished:?}");
        assert!(finished.stderr.contains(part), "{arguments:?}: {}", finished.stderr);
    }
    let in_use = Finished::of(exec_at(&dir, &port)?.args(["--", "touch"]).arg(&marker))?;
    assert_eq!(in_use.code, Some(125), "{in_use:?}");
    assert!(in_use.stderr.contains(&port) && in_use.stderr.contains("in use"), "{}", in_use.stderr);

    dir.switch("shop", "9.9.9")?;
    let broken = start(&[])?;
    assert_eq!(broken.code, Some(125), "{broken:?}");
    assert!(broken.stderr.contains("version 9.9.9 of shop is current, but there is no folder"), "{}", broken.stderr);
    Ok(())
}
