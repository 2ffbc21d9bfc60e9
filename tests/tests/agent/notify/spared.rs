//! A process without a handler gets no signal, and the status says why.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use nudge_protocol::status::Outcome;
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::{AgentUnderTest, procfs, tools};

use super::signalled_app::{APP, USR1, was_delivered};

#[tokio::test]
async fn a_child_without_a_handler_survives_and_is_reported() -> Result<()> {
    let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &USR1, &[APP]).await?;
    let app = agent.ready().await?;
    agent.dir.switch("shop", "1.0.1")?;
    agent.wait_until_served("shop=1.0.1").await?;
    let trying = agent.notified_when("the agent waits for a handler", |notified| notified.attempts > 0).await?;
    assert_eq!(trying.notified.outcome, Outcome::Pending);

    let given_up =
        agent.notified_when("there is no handler", |notified| notified.outcome == Outcome::NoHandler).await?;
    assert!(
        given_up.notified.message.contains("no process has a handler for SIGUSR1"),
        "{}",
        given_up.notified.message
    );
    assert!(!given_up.acknowledged);
    agent.logs("NoHandler").await?;
    assert!(procfs::memory(app).is_ok(), "the child is gone");
    agent.agent.check()
}

#[tokio::test]
async fn a_child_that_ignores_the_signal_is_reported_as_such() -> Result<()> {
    let script = format!("trap '' USR1; exec {APP}");
    let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &USR1, &["sh", "-c", &script]).await?;
    agent.wait_for_lines(1, "ready").await?;
    agent.dir.switch("shop", "1.0.1")?;
    let given_up =
        agent.notified_when("there is no handler", |notified| notified.outcome == Outcome::NoHandler).await?;
    assert!(given_up.notified.message.contains("a process ignores SIGUSR1"), "{}", given_up.notified.message);
    Ok(())
}

/// Returns an application that installs its handlers once the returned file exists. A switch comes before that.
async fn switched_before_there_are_handlers() -> Result<(AgentUnderTest, PathBuf)> {
    let dir = AgentUnderTest::shop()?;
    let handlers = dir.beside("handlers");
    let child = [APP, "--catch", "SIGUSR1", "--fetch", "--after"].map(Path::new);
    let child = child.into_iter().chain([handlers.as_path()]).collect::<Vec<_>>();
    let mut agent = AgentUnderTest::start(dir, &USR1, &child).await?;
    agent.wait_for_lines(1, "without handlers").await?;
    agent.dir.switch("shop", "1.0.1")?;
    Ok((agent, handlers))
}

#[tokio::test]
async fn a_handler_installed_late_gets_the_signal() -> Result<()> {
    let (mut agent, handlers) = switched_before_there_are_handlers().await?;
    // About a quarter of a second.
    agent.notified_when("the agent has tried often", |notified| notified.attempts > 7).await?;
    fs::write(&handlers, "")?;
    agent.wait_for_lines(1, "SIGUSR1 shop=1.0.1").await?;
    agent.notified_when("the signal is delivered", was_delivered).await?;
    Ok(())
}

#[tokio::test]
async fn a_handler_installed_after_the_agent_gave_up_still_gets_the_newest() -> Result<()> {
    let (mut agent, handlers) = switched_before_there_are_handlers().await?;
    agent.notified_when("there is no handler", |notified| notified.outcome == Outcome::NoHandler).await?;
    fs::write(&handlers, "")?;
    agent.wait_for_lines(1, "SIGUSR1 shop=1.0.1").await?;
    let container = agent.notified_when("the signal is delivered", was_delivered).await?;
    assert!(container.notified.message.is_empty(), "{}", container.notified.message);
    Ok(())
}

#[tokio::test]
async fn a_child_that_exits_at_once_ends_the_agent_with_its_status() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    let exec = nudge_tests::ExecCommand::new(nudge_tests::binary::debug()?, dir.path()).args(USR1);
    let mut agent = exec.spawn(&["sh", "-c", "exit 7"])?;
    let status = agent.process().wait_for_exit(WAIT_TIMEOUT).await.map_err(|error| agent.explain(&error))?;
    assert_eq!(status.code(), Some(7));
    Ok(())
}

#[tokio::test]
async fn a_signal_that_may_not_be_sent_is_reported_with_its_cause() -> Result<()> {
    let no_kill = ["setpriv", "--bounding-set=-kill"];
    let other_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let mut probe = std::process::Command::new(no_kill[0]);
    let works = probe.arg(no_kill[1]).args(other_user).arg("true").status().is_ok_and(|status| status.success());
    if !Uid::effective().is_root() || !works {
        tools::skipped("only root can run an agent without the capability KILL, and its child as another user");
        return Ok(());
    }
    let script = ["sh", "-c", "trap 'echo SIGUSR1' USR1; echo ready; while :; do sleep 1; done"];
    let child = other_user.into_iter().chain(script).collect::<Vec<_>>();
    let mut agent =
        AgentUnderTest::start_with(AgentUnderTest::shop()?, |exec| exec.args(USR1).under(no_kill), &child).await?;
    agent.wait_for_lines(1, "ready").await?;
    agent.dir.switch("shop", "1.0.1")?;
    let denied = agent.notified_when("it is denied", |notified| notified.outcome == Outcome::PermissionDenied).await?;
    for part in ["may not be signalled by user 0", "KILL", "AppArmor", "SELinux"] {
        assert!(denied.notified.message.contains(part), "{part}: {}", denied.notified.message);
    }
    agent.logs("PermissionDenied").await?;
    assert!(!agent.agent.output().contains("SIGUSR1"));
    // The agent can't end it either.
    for pid in procfs::descendants(agent.agent.pid())? {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    agent.agent.process().wait_for_exit(WAIT_TIMEOUT).await?;
    Ok(())
}
