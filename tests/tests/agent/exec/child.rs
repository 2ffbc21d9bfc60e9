//! The environment of the child, and the remains when it has ended.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, anyhow};
use nix::sys::signal::Signal;
use nudge_protocol::env;
use nudge_tests::agent::IDLE;
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::{AgentUnderTest, Finished, binary};

use super::exec_command::{APP, exec, run};

#[test]
fn the_child_starts_when_the_endpoint_serves() -> Result<()> {
    let agent = binary::debug()?.to_str().context("odd path")?;
    for _ in 0..5 {
        let finished = run(&AgentUnderTest::shop()?, &[agent, "get", "lives"])?;
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(0), "3"), "{finished:?}");
    }
    Ok(())
}

#[test]
fn standard_input_and_output_are_the_childs() -> Result<()> {
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let dir = AgentUnderTest::shop()?;
    let mut command = exec(&dir)?;
    command.args(["--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let mut input = child.stdin.take().context("no standard input")?;
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || input.write_all(&sent));
    let output = child.wait_with_output()?;
    writer.join().map_err(|_| anyhow!("the writer panicked"))??;
    assert!(output.status.success());
    assert!(output.stdout == bytes, "{} bytes came back", output.stdout.len());
    Ok(())
}

#[tokio::test]
async fn the_files_for_the_child_are_gone_when_it_has_ended() -> Result<()> {
    let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &[], &IDLE).await?;
    let files = [&agent.access.variables[env::TOKEN_FILE], &agent.access.variables[env::CERT]]
        .map(|path| Path::new(path).to_owned());
    assert!(files.iter().all(|file| file.is_file()), "{files:?}");
    agent.agent.process().signal(Signal::SIGTERM)?;
    assert_eq!(agent.agent.process().wait_for_exit(WAIT_TIMEOUT).await?.code(), Some(143));
    for file in files {
        assert!(!file.exists() && !file.parent().is_some_and(Path::exists), "{} is left", file.display());
    }
    Ok(())
}

#[test]
fn no_files_are_left_of_a_command_that_could_not_start() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    let temporary = dir.beside("temporary");
    fs::create_dir(&temporary)?;
    let mut command = exec(&dir)?;
    command.args(["--", "no-such-command"]).env("TMPDIR", &temporary);
    assert_eq!(Finished::of(&mut command)?.code, Some(127));
    assert_eq!(fs::read_dir(&temporary)?.count(), 0);
    Ok(())
}

#[tokio::test]
async fn the_log_can_be_json_and_never_holds_the_token_or_a_value() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    dir.write_version("shop", "2.0.0", [("password", "hunter2")])?;
    let arguments = ["--log-format", "json", "--log-level", "debug", "--notify", "SIGUSR1"];
    let mut agent = AgentUnderTest::start(dir, &arguments, &[APP, "--catch", "SIGUSR1"]).await?;
    agent.wait_for_lines(1, "ready").await?;
    agent.dir.switch("shop", "2.0.0")?;
    agent.wait_for_lines(1, "SIGUSR1").await?;
    let token = agent.access.token.clone();
    agent.client.get(&format!("/config/{token}")).await?;
    agent.agent.process().stop()?;
    let log = agent.agent.log();
    for line in log.lines() {
        let line: serde_json::Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        assert!(line["level"].is_string() && line["message"].is_string(), "{line}");
    }
    assert!(log.contains("started") && !log.contains("hunter2") && !log.contains(&token), "{log}");
    Ok(())
}
