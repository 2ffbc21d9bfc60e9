//! At a terminal the child has the foreground, and Ctrl-C and Ctrl-Z work as without the agent.

use anyhow::{Context, Result};
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::{AgentUnderTest, eventually, procfs};

use super::exec_command::APP;
use super::terminal::{CTRL_C, CTRL_Z, Terminal, arguments, command_line};

#[tokio::test]
async fn ctrl_c_reaches_the_child_once() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    let mut terminal = Terminal::start(&arguments(&dir, &[APP, "--catch", "SIGINT"])?)?;
    terminal.ready_in_front().await?;
    for times in 1..=3 {
        terminal.type_keys(CTRL_C)?;
        terminal.wait_for_text(times, " SIGINT").await?;
    }
    assert_eq!(terminal.output().matches(" SIGINT").count(), 3, "{}", terminal.output());
    assert!(!terminal.output().contains("passed on"), "the agent got it too: {}", terminal.output());
    Ok(())
}

#[tokio::test]
async fn a_child_that_reads_the_terminal_at_once_is_not_stopped() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    for _ in 0..10 {
        let child = ["sh", "-c", "read word && echo \"read $word\""];
        let mut terminal = Terminal::start(&arguments(&dir, &child)?)?;
        terminal.type_keys("something\n")?;
        terminal.wait_for_text(1, "read something").await?;
        assert_eq!(terminal.process.wait_for_exit(WAIT_TIMEOUT).await?.code(), Some(0));
    }
    Ok(())
}

#[tokio::test]
async fn ctrl_z_stops_the_job_and_fg_continues_with_it() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    let mut terminal = Terminal::start(&["sh", "-i"])?;
    terminal.type_keys(&format!("{}\n", command_line(&dir, &[APP, "--catch", "SIGUSR1"])?))?;
    let app = terminal.ready_in_front().await?;
    let job = procfs::parent(app).context("the application has no parent")?;

    terminal.type_keys(CTRL_Z)?;
    for pid in [app, job] {
        eventually(WAIT_TIMEOUT, "it is stopped", async || (procfs::state(pid) == Some('T')).then_some(())).await?;
    }
    terminal.type_keys("echo back $((6 * 7))\n")?;
    terminal.wait_for_text(1, "back 42").await?;

    terminal.type_keys("fg\n")?;
    for pid in [app, job] {
        eventually(WAIT_TIMEOUT, "it continues", async || (procfs::state(pid) != Some('T')).then_some(())).await?;
    }
    dir.switch("shop", "1.0.1")?;
    terminal.wait_for_text(1, &format!("{app} SIGUSR1")).await?;

    terminal.interrupt(app).await?;
    terminal.wait_for_status(130).await
}

#[tokio::test]
async fn a_script_has_the_terminal_again_when_the_child_has_ended() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    let script = format!("{}; read word && echo \"read $word\"", command_line(&dir, &["true"])?);
    let mut terminal = Terminal::start(&["sh", "-c", &script])?;
    terminal.type_keys("something\n")?;
    terminal.wait_for_text(1, "read something").await
}

#[tokio::test]
async fn ctrl_z_where_no_shell_could_continue_with_the_job_stops_nothing() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    // As with `ssh -t` or `docker run -it`: the agent is the session's first process.
    let mut terminal = Terminal::start(&arguments(&dir, &[APP, "--catch", "SIGUSR1", "--catch", "SIGCONT"])?)?;
    let app = terminal.ready_in_front().await?;
    terminal.type_keys(CTRL_Z)?;
    terminal.wait_for_text(1, &format!("{app} SIGCONT")).await?;
    dir.switch("shop", "1.0.1")?;
    terminal.wait_for_text(1, &format!("{app} SIGUSR1")).await
}
