//! A process without a claim to the terminal leaves it alone: jobs in the background, and pipelines.

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::{AgentUnderTest, eventually, procfs};

use super::exec_command::APP;
use super::terminal::{Terminal, command_line};

#[tokio::test]
async fn a_job_in_the_background_leaves_the_terminal_to_the_shell() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    let mut terminal = Terminal::start(&["sh", "-i"])?;
    terminal.type_keys(&format!("{} &\n", command_line(&dir, &[APP, "--catch", "SIGUSR1"])?))?;
    let app = terminal.ready().await?;
    for times in 1..=2 {
        terminal.type_keys(&format!("echo still $(({times} + 40))\n"))?;
        terminal.wait_for_text(1, &format!("still {}", times + 40)).await?;
    }
    dir.switch("shop", "1.0.1")?;
    terminal.wait_for_text(1, &format!("{app} SIGUSR1")).await?;
    terminal.type_keys("fg\n")?;
    terminal.belongs_to(app).await?;
    terminal.interrupt(app).await?;
    terminal.wait_for_status(130).await
}

#[tokio::test]
async fn a_child_in_the_background_that_reads_the_terminal_waits_quietly() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    let child = ["sh", "-c", r#"'trap "echo again" CONT; echo $$ ready; read word'"#];
    let mut terminal = Terminal::start(&["sh", "-i"])?;
    // No job of the shell, so that the kernel does not stop the agent.
    terminal.type_keys(&format!("({} </dev/tty &)\n", command_line(&dir, &child)?))?;
    let child = terminal.ready().await?;
    eventually(WAIT_TIMEOUT, "it is stopped", async || (procfs::state(child) == Some('T')).then_some(())).await?;
    for version in ["1.0.1", "1.0.2"] {
        dir.switch("shop", version)?;
        terminal.wait_for_text(1, &format!("serving configs=shop={version}")).await?;
    }
    assert!(!terminal.output().contains("again\r\n"), "it is woken in vain: {}", terminal.output());
    terminal.type_keys("echo still $((6 * 7))\n")?;
    terminal.wait_for_text(1, "still 42").await?;
    // It belongs to no shell, so only this test ends it.
    let agent = procfs::parent(child).context("no parent")?;
    kill(Pid::from_raw(child), Signal::SIGKILL)?;
    eventually(WAIT_TIMEOUT, "the agent has ended", async || procfs::state(agent).is_none().then_some(())).await
}

#[tokio::test]
async fn in_a_pipeline_the_terminal_is_left_to_the_one_that_reads_from_it() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    let mut terminal = Terminal::start(&["sh", "-i"])?;
    // As less(1) does.
    let pager = "(read first; echo \"$first\"; read key </dev/tty; echo \"key $key\"; cat)";
    terminal.type_keys(&format!("{} | {pager}\n", command_line(&dir, &[APP])?))?;
    let app = terminal.ready().await?;
    terminal.type_keys("q\n")?;
    terminal.wait_for_text(1, "key q").await?;
    terminal.interrupt(app).await
}

#[tokio::test]
async fn in_a_pipeline_the_child_gets_the_terminal_when_it_reads_from_it() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    let mut terminal = Terminal::start(&["sh", "-i"])?;
    let child = ["sh", "-c", "'read word; echo \"read $word\"'"];
    terminal.type_keys(&format!("{} | cat\n", command_line(&dir, &child)?))?;
    terminal.wait_for_text(1, " started endpoint").await?;
    terminal.type_keys("something\n")?;
    terminal.wait_for_text(1, "read something").await
}
