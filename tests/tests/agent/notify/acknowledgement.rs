//! Acknowledgements: the answers and reads that count.

use anyhow::{Result, ensure};
use http_body_util::Full;
use hyper::{Method, StatusCode};
use nudge_protocol::headers;
use nudge_tests::AgentUnderTest;
use nudge_tests::agent::IDLE;

use super::signalled_app::{CATCHES, USR1, was_delivered};

#[tokio::test]
async fn delivered_is_acknowledged_by_the_signal_alone() -> Result<()> {
    let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &USR1, &CATCHES).await?;
    agent.wait_for_lines(1, "ready").await?;
    agent.dir.switch("shop", "1.0.1")?;
    let container = agent.notified_when("the signal is delivered", was_delivered).await?;
    assert!(container.acknowledged && container.fetched.is_none(), "{container:?}");
    Ok(())
}

#[tokio::test]
async fn fetched_is_acknowledged_by_a_request_that_names_the_container() -> Result<()> {
    let arguments = ["--notify", "SIGUSR1", "--ack", "fetched"];
    let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &arguments, &CATCHES).await?;
    agent.wait_for_lines(1, "ready").await?;
    assert_eq!(agent.access.variables["MY_CONFIG_CONTAINER"], "app");
    agent.dir.switch("shop", "1.0.1")?;
    let container = agent.notified_when("the signal is delivered", was_delivered).await?;
    assert!(!container.acknowledged, "{container:?}");

    fetch_as(&mut agent, "stranger").await?;
    let container = agent.client.status().await?.containers.remove(0);
    assert!(!container.acknowledged && container.fetched.is_none(), "another container's request: {container:?}");

    fetch_as(&mut agent, "app").await?;
    let status = agent.client.status().await?;
    assert!(status.containers[0].acknowledged, "{status:?}");
    assert_eq!(status.containers[0].fetched, Some(status.etag));

    // It has the version before, and not the next one yet.
    agent.dir.switch("shop", "1.0.2")?;
    let status = agent.status_when("1.0.2", |status| status.configs[0].version.as_str() == "1.0.2").await?;
    assert!(!status.containers[0].acknowledged, "{status:?}");
    Ok(())
}

#[tokio::test]
async fn a_request_that_names_no_container_counts_for_the_only_one_that_is_notified() -> Result<()> {
    for (notify, child, counts) in [("SIGUSR1", &CATCHES[..], true), ("none", &IDLE[..], false)] {
        let mut agent =
            AgentUnderTest::start(AgentUnderTest::shop()?, &["--notify", notify, "--ack", "fetched"], child).await?;
        agent.client.get("/config").await?;
        let container = agent.client.status().await?.containers.remove(0);
        assert_eq!(container.acknowledged, counts, "{notify}: {container:?}");
    }
    Ok(())
}

async fn fetch_as(agent: &mut AgentUnderTest, container: &str) -> Result<()> {
    let request = agent.client.request(Method::GET, "/config").header(headers::CONTAINER, container);
    let reply = agent.client.send(request.body(Full::default())?).await?;
    ensure!(reply.status == StatusCode::OK);
    Ok(())
}
