//! After changes in quick succession every subscriber has the newest.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use nudge_protocol::status::NotificationStatus;
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::{AgentUnderTest, HookServer};

use super::signalled_app::{FETCHES, USR1, was_delivered};

#[tokio::test]
async fn an_application_that_fetches_at_once_with_the_signal_gets_the_new_version() -> Result<()> {
    let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &USR1, &FETCHES).await?;
    agent.wait_for_lines(1, "ready").await?;
    for round in 1..=100 {
        let version = ["1.0.0", "1.0.1"][round % 2];
        agent.dir.switch("shop", version)?;
        let output = agent.output_when("a line for every switch", |output| output.lines().count() > round).await?;
        let line = output.lines().next_back().unwrap_or_default();
        ensure!(line.ends_with(&format!("SIGUSR1 shop={version}")), "round {round}: {line}");
    }
    Ok(())
}

/// Switches 50 times as fast as it goes, and waits until all four subscribers are at the last one: two processes below
/// the child, which take `slow` milliseconds over each signal, and two webhooks.
async fn storm(slow: &str) -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    let versions: Vec<String> = (0..50).map(|n| format!("2.{n}")).collect();
    for version in &versions {
        dir.write_version("shop", version, [("lives", version)])?;
    }
    let app = format!("{} --slow {slow}", FETCHES.join(" "));
    let script = format!("{app} & {app} & wait");
    let mut agent = AgentUnderTest::start(dir, &USR1, &["sh", "-c", &script]).await?;
    let output = agent.wait_for_lines(2, "ready").await?;
    let pids: BTreeSet<&str> = output.split_whitespace().filter(|part| *part != "ready").collect();
    ensure!(pids.len() == 2, "{output}");
    let hooks = [HookServer::willing().await?, HookServer::willing().await?];
    for hook in &hooks {
        agent.subscribed(hook.url()).await?;
    }

    for version in &versions {
        agent.dir.switch("shop", version)?;
        // Lets the webhooks and the agent run in between, as they would if another process switched.
        tokio::task::yield_now().await;
    }
    agent.wait_until_served("shop=2.49").await?;
    let status = agent.client.status().await?;
    for pid in pids {
        let last = format!("{pid} SIGUSR1 shop=2.49");
        let at_last = |output: &str| output.lines().rfind(|line| line.starts_with(pid)) == Some(&last);
        agent.output_when(&format!("{pid} ends on the newest version"), at_last).await?;
    }
    for hook in &hooks {
        let last = hook.notified_of("2.49", WAIT_TIMEOUT).await?;
        ensure!(last.event()?.data.etag == status.etag);
    }
    let newest =
        |notified: &NotificationStatus| was_delivered(notified) && notified.etag.as_ref() == Some(&status.etag);
    let settled = agent.status_when("every subscriber was notified of the newest version", |status| {
        status.containers.iter().all(|container| newest(&container.notified) && container.acknowledged)
            && status.hooks.iter().all(|hook| newest(&hook.notified))
    });
    settled.await?;
    for hook in &hooks {
        // In order, none twice, the newest last.
        let notified: Vec<u32> = hook
            .deliveries()
            .iter()
            .map(|delivery| Ok(delivery.version()?.trim_start_matches("2.").parse()?))
            .collect::<Result<_>>()?;
        ensure!(notified.is_sorted_by(|one, two| one < two) && notified.last() == Some(&49), "{notified:?}");
    }
    Ok(())
}

#[tokio::test]
async fn fifty_changes_at_once_end_with_every_subscriber_on_the_newest() -> Result<()> {
    storm("0").await
}

#[tokio::test]
async fn fifty_changes_at_once_end_with_slow_handlers_on_the_newest_too() -> Result<()> {
    storm("100").await
}
