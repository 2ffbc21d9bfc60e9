//! A report over the connection whose poll is held.

use std::time::Duration;

use anyhow::{Result, ensure};
use hyper::StatusCode;
use nudge_hub::Settings;
use nudge_protocol::hub::{INTERRUPT, PollRequest, REPORT_PATH};
use nudge_tests::fakes::crowd::token;
use nudge_tests::{Raw, eventually};

use crate::front::{Front, after, message, poll, read};
use crate::stand_in::{StandIn, pod};

const TEST_TIMEOUT: Duration = Duration::from_secs(20);
const REPORT: &str = r#"{"agent":"0.1.0","acknowledged":true}"#;

/// A hub with a pod whose poll is held.
async fn held() -> Result<(StandIn, Front, Raw, PollRequest)> {
    let stand_in = StandIn::new(Settings::default(), 1, Duration::ZERO);
    stand_in.activate(&stand_in.stored.add("1", &[&[("key", b"x".to_vec())]]));
    let front = Front::new(&stand_in.hub)?;
    let mut agent = front.connect().await?;
    agent.send(poll(&token(0), &PollRequest::default())?).await?;
    let request = after(&read(&agent.reply().await?)?.0);
    agent.send(poll(&token(0), &request)?).await?;
    is_held(&stand_in).await?;
    Ok((stand_in, front, agent, request))
}

async fn is_held(stand_in: &StandIn) -> Result<()> {
    let uid = pod(0).uid;
    eventually(TEST_TIMEOUT, "the poll is held", async || stand_in.hub.is_connected(&uid).then_some(())).await
}

fn reported(stand_in: &StandIn) -> bool {
    let pod = pod(0);
    stand_in.hub.last_report(&pod.key(), &pod.uid).is_some_and(|reported| reported.report.acknowledged)
}

#[tokio::test]
async fn an_agent_ends_its_poll_reports_and_polls_again_over_one_connection() -> Result<()> {
    let (stand_in, _front, mut agent, request) = held().await?;
    agent.send(INTERRUPT).await?;
    ensure!(agent.reply().await?.status == StatusCode::NO_CONTENT);
    agent.send(message(REPORT_PATH, &token(0), REPORT)).await?;
    ensure!(agent.reply().await?.status == StatusCode::NO_CONTENT && reported(&stand_in));
    agent.send(poll(&token(0), &request)?).await?;
    is_held(&stand_in).await?;
    ensure!(stand_in.metrics().contains("hub_polls_total{result=\"interrupted\"} 1"));
    // The same if the line comes together with the poll.
    agent.send(INTERRUPT).await?;
    ensure!(agent.reply().await?.status == StatusCode::NO_CONTENT);
    agent.send(format!("{}\r\n", poll(&token(0), &request)?)).await?;
    ensure!(agent.reply().await?.status == StatusCode::NO_CONTENT);
    for _ in 0..20 {
        agent.send(poll(&token(0), &request)?).await?;
        agent.send(INTERRUPT).await?;
        ensure!(agent.reply().await?.status == StatusCode::NO_CONTENT);
    }
    agent.send(poll(&token(0), &request)?).await?;
    is_held(&stand_in).await?;
    // Another version comes as this poll is ended: the line is left over, and is no part of the report.
    stand_in.activate(&stand_in.stored.add("2", &[&[("key", b"y".to_vec())]]));
    let (head, _) = read(&agent.reply().await?)?;
    agent.send(INTERRUPT).await?;
    agent.send(message(REPORT_PATH, &token(0), REPORT)).await?;
    ensure!(agent.reply().await?.status == StatusCode::NO_CONTENT);
    agent.send(poll(&token(0), &after(&head))?).await?;
    is_held(&stand_in).await?;
    ensure!(agent.is_silent().await, "nothing of the last request ends this one");
    Ok(())
}

#[tokio::test]
async fn a_client_that_says_anything_else_meanwhile_is_cut() -> Result<()> {
    for line in [&b"\n"[..], b"x\r\n", b"\r\n\r\n", b"POST /v1/report HTTP/1.1\r\n"] {
        let (stand_in, _front, mut agent, _) = held().await?;
        agent.send(line).await?;
        if line.starts_with(INTERRUPT) {
            // The second line waits for a request, which does not come.
            ensure!(agent.reply().await?.status == StatusCode::NO_CONTENT);
        } else {
            agent.ended().await;
        }
        ensure!(!stand_in.hub.is_connected(&pod(0).uid));
    }
    Ok(())
}
