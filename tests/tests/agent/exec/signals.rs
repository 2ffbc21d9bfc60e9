//! Signals reach the child, and its orphans come to the agent.

use std::fs::{self, OpenOptions};
use std::path::Path;

use anyhow::Result;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, getpgid, mkfifo};
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::{AgentUnderTest, eventually, procfs};

use super::exec_command::APP;

#[tokio::test]
async fn signals_are_passed_on_to_the_child() -> Result<()> {
    let signals = ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"];
    let mut child = vec![APP];
    child.extend(signals.iter().flat_map(|signal| ["--catch", signal]));
    let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &[], &child).await?;
    let app = agent.ready().await?;
    for signal in signals {
        agent.agent.process().signal(signal.parse::<Signal>()?)?;
        agent.wait_for_lines(1, signal).await?;
    }
    kill(Pid::from_raw(app), Signal::SIGKILL)?;
    assert_eq!(agent.agent.process().wait_for_exit(WAIT_TIMEOUT).await?.code(), Some(137));
    Ok(())
}

#[tokio::test]
async fn a_signal_that_the_child_does_not_catch_ends_both() -> Result<()> {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &[], &[APP]).await?;
        agent.wait_for_lines(1, "ready").await?;
        agent.agent.process().signal(signal)?;
        let status = agent.agent.process().wait_for_exit(WAIT_TIMEOUT).await?;
        assert_eq!(status.code(), Some(128 + signal as i32), "{signal}");
    }
    Ok(())
}

#[tokio::test]
async fn a_hang_up_that_nohup_made_ignored_stays_ignored() -> Result<()> {
    let nohup = ["sh", "-c", "trap '' HUP && exec \"$@\"", "sh"];
    let child = [APP, "--catch", "SIGHUP", "--catch", "SIGINT"];
    let mut agent = AgentUnderTest::start_with(AgentUnderTest::shop()?, |exec| exec.under(nohup), &child).await?;
    agent.wait_for_lines(1, "ready").await?;
    agent.agent.process().signal(Signal::SIGHUP)?;
    // What comes after it shows that it has not come.
    for times in 1..=2 {
        agent.agent.process().signal(Signal::SIGINT)?;
        let output = agent.wait_for_lines(times, "SIGINT").await?;
        assert!(!output.contains("SIGHUP"), "{output}");
    }
    agent.agent.check()
}

#[tokio::test]
async fn the_child_has_a_process_group_of_its_own() -> Result<()> {
    let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &[], &[APP]).await?;
    let child = agent.ready().await?;
    assert_eq!(getpgid(Some(Pid::from_raw(child)))?.as_raw(), child);
    assert_ne!(getpgid(Some(Pid::from_raw(agent.agent.pid())))?.as_raw(), child);
    Ok(())
}

#[tokio::test]
async fn orphans_come_to_the_agent_and_are_reaped() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    let (gate, pid) = (dir.beside("gate"), dir.beside("pid"));
    mkfifo(&gate, Mode::S_IRUSR | Mode::S_IWUSR)?;
    // The inner shell leaves a process behind that waits at the gate.
    let orphan = r#"sh -c 'echo $$ >"$1.part" && mv "$1.part" "$1" && : <"$0"' "$0" "$1""#;
    let script = format!(r#"sh -c '{} &' "$0" "$1"; exec {APP}"#, orphan.replace('\'', r"'\''"));
    let child = [Path::new("sh"), "-c".as_ref(), script.as_ref(), &gate, &pid];
    let mut agent = AgentUnderTest::start(dir, &[], &child).await?;
    agent.wait_for_lines(1, "ready").await?;
    let orphan: i32 =
        eventually(WAIT_TIMEOUT, "the orphan runs", async || fs::read_to_string(&pid).ok()?.trim().parse().ok())
            .await?;
    let parent = agent.agent.pid();
    eventually(WAIT_TIMEOUT, "it has become the agent's", async || {
        (procfs::parent(orphan) == Some(parent)).then_some(())
    })
    .await?;
    OpenOptions::new().write(true).open(&gate)?;
    eventually(WAIT_TIMEOUT, "it is reaped", async || procfs::state(orphan).is_none().then_some(())).await?;
    agent.agent.check()
}
