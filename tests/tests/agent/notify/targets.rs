//! Which processes of the child get the signal.

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nudge_protocol::status::NotificationStatus;
use nudge_tests::AgentUnderTest;

use super::signalled_app::{APP, FETCHES, USR1, was_delivered};

#[tokio::test]
async fn the_child_gets_the_signal_and_the_status_says_so() -> Result<()> {
    let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &USR1, &FETCHES).await?;
    let app = agent.ready().await?;
    let before = agent.client.status().await?;
    assert_eq!(before.containers[0].notified, NotificationStatus::default());

    agent.dir.switch("shop", "1.0.1")?;
    agent.wait_for_lines(1, "SIGUSR1 shop=1.0.1").await?;
    let container = agent.notified_when("the signal is delivered", was_delivered).await?;
    assert_eq!(container.notified.processes, [app]);
    assert_eq!(container.notified.etag, Some(agent.client.status().await?.etag));
    assert!(container.notified.at.is_some());
    Ok(())
}

#[tokio::test]
async fn each_of_the_three_signals_works() -> Result<()> {
    for signal in ["SIGUSR1", "SIGUSR2", "SIGHUP"] {
        let mut agent =
            AgentUnderTest::start(AgentUnderTest::shop()?, &["--notify", signal], &[APP, "--catch", signal])
                .await
                .context(signal)?;
        agent.wait_for_lines(1, "ready").await?;
        agent.dir.switch("shop", "1.0.1")?;
        agent.wait_for_lines(1, signal).await?;
    }
    Ok(())
}

/// Switches, and returns the process ID of the application, the only process that was notified.
async fn only_the_application_is_notified(agent: &mut AgentUnderTest) -> Result<i32> {
    let app = agent.ready().await?;
    agent.dir.switch("shop", "1.0.1")?;
    agent.wait_for_lines(1, "SIGUSR1").await?;
    let container = agent.notified_when("the signal is delivered", was_delivered).await?;
    ensure!(container.notified.processes == [app], "{:?}", container.notified.processes);
    Ok(app)
}

#[tokio::test]
async fn the_application_below_a_shell_gets_the_signal_and_the_shell_survives() -> Result<()> {
    let script = format!("{APP} --catch SIGUSR1; echo the shell continues");
    let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &USR1, &["sh", "-c", &script]).await?;
    only_the_application_is_notified(&mut agent).await?;
    assert!(!agent.agent.output().contains("the shell continues"));
    Ok(())
}

#[tokio::test]
async fn the_application_below_an_init_gets_the_signal() -> Result<()> {
    // The init catches what an init does, and starts the application by a shell.
    let script = format!("trap : TERM INT CHLD; sh -c '{APP} --catch SIGUSR1; exit'; wait");
    let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &USR1, &["sh", "-c", &script]).await?;
    let app = only_the_application_is_notified(&mut agent).await?;
    // The init would wait for ever.
    kill(Pid::from_raw(app), Signal::SIGKILL)?;
    Ok(())
}

#[tokio::test]
async fn the_helpers_of_an_application_that_catches_the_signal_get_none() -> Result<()> {
    let script = format!("trap 'echo parent SIGUSR1' USR1; {APP} --catch SIGUSR1 & while :; do wait; done");
    let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &USR1, &["sh", "-c", &script]).await?;
    let app = agent.ready().await?;
    agent.dir.switch("shop", "1.0.1")?;
    let container = agent.notified_when("the signal is delivered", was_delivered).await?;
    assert_eq!(container.notified.processes.len(), 1);
    assert_ne!(container.notified.processes, [app]);
    agent.wait_for_lines(1, "parent SIGUSR1").await?;
    Ok(())
}

#[tokio::test]
async fn a_hang_up_that_is_the_notification_is_not_forwarded() -> Result<()> {
    let child = [APP, "--catch", "SIGHUP", "--catch", "SIGINT"];
    let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &["--notify", "SIGHUP"], &child).await?;
    agent.wait_for_lines(1, "ready").await?;
    agent.agent.process().signal(Signal::SIGHUP)?;
    agent.logs("not passed on").await?;
    // What comes after it shows that it has not come.
    agent.agent.process().signal(Signal::SIGINT)?;
    let output = agent.wait_for_lines(1, "SIGINT").await?;
    assert!(!output.contains("SIGHUP"), "{output}");
    agent.dir.switch("shop", "1.0.1")?;
    agent.wait_for_lines(1, "SIGHUP").await?;
    Ok(())
}
