//! A webhook that fails, in any way, gets the newest event when it works again.

use std::time::Duration;

use anyhow::Result;
use hyper::StatusCode;
use nudge_protocol::status::Outcome;
use nudge_tests::agent::IDLE;
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::ports::Nobody;
use nudge_tests::{AgentUnderTest, Answer, HookServer};

use super::signalled_app::{FETCHES, USR1, was_delivered};

/// How long the agent waits for an answer before it tries again, and some more.
const RETRY_TIMEOUT: Duration = Duration::from_secs(40);

#[tokio::test]
async fn a_webhook_that_answers_500_for_a_while_gets_the_same_event_with_growing_waits_and_then_the_newest()
-> Result<()> {
    let server = HookServer::start(Answer::Status(StatusCode::INTERNAL_SERVER_ERROR)).await?;
    let dir = AgentUnderTest::shop()?;
    dir.write_version("shop", "2.0.0", [("lives", "5"), ("greeting", "hello")])?;
    let mut agent = AgentUnderTest::start(dir, &[], &IDLE).await?;
    let hook = agent.subscribed(server.url()).await?;
    agent.dir.switch("shop", "1.0.1")?;
    let tries = server.wait_for(4, WAIT_TIMEOUT).await?;
    assert!(tries.iter().all(|delivery| delivery.id() == tries[0].id() && !delivery.id().is_empty()), "{tries:?}");
    // At least half of 1, 2 and 4 seconds.
    for (pair, least) in tries.windows(2).zip([500, 1000, 2000]) {
        let waited = pair[1].at.duration_since(pair[0].at);
        assert!(waited >= Duration::from_millis(least), "{waited:?} is less than {least} ms");
    }
    let failing = agent.hook_when(&hook.id, "it is tried again", |notified| notified.attempts >= 4).await?;
    assert_eq!(failing.outcome, Outcome::Pending);
    assert!(failing.message.contains("500"), "{}", failing.message);

    agent.dir.switch("shop", "2.0.0")?;
    let newest = server.notified_of("2.0.0", WAIT_TIMEOUT).await?;
    assert_ne!(newest.id(), tries[0].id(), "another event has the same id");
    server.answer(Answer::Status(StatusCode::OK));
    let notified = agent.hook_when(&hook.id, "the newest is delivered", was_delivered).await?;
    assert_eq!(notified.etag, Some(agent.client.status().await?.etag));
    // The second event includes the changes of the first, which was never taken.
    assert_eq!(newest.event()?.data.changed, ["greeting", "lives"]);
    Ok(())
}

#[tokio::test]
async fn a_webhook_that_hangs_delays_no_other_and_gets_the_newest_later() -> Result<()> {
    let (hanging, willing) = (HookServer::start(Answer::Hang).await?, HookServer::willing().await?);
    let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &USR1, &FETCHES).await?;
    agent.wait_for_lines(1, "ready").await?;
    let stuck = agent.subscribed(hanging.url()).await?;
    agent.subscribed(willing.url()).await?;
    agent.dir.switch("shop", "1.0.1")?;
    hanging.wait_for(1, WAIT_TIMEOUT).await?;
    willing.notified_of("1.0.1", WAIT_TIMEOUT).await?;
    agent.wait_for_lines(1, "SIGUSR1 shop=1.0.1").await?;
    agent.dir.switch("shop", "1.0.2")?;
    willing.notified_of("1.0.2", WAIT_TIMEOUT).await?;
    agent.wait_for_lines(1, "SIGUSR1 shop=1.0.2").await?;
    let held = agent.hook_when(&stuck.id, "it is known", |_| true).await?;
    assert_eq!(held.attempts, 0, "the others waited until the request that hangs was given up: {held:?}");
    assert_eq!(hanging.deliveries().len(), 1, "two requests at once");

    hanging.answer(Answer::Status(StatusCode::OK));
    hanging.notified_of("1.0.2", RETRY_TIMEOUT).await?;
    agent.hook_when(&stuck.id, "the newest is delivered", was_delivered).await?;
    Ok(())
}

#[tokio::test]
async fn a_redirect_is_not_followed() -> Result<()> {
    let elsewhere = HookServer::willing().await?;
    let server = HookServer::start(Answer::Redirect(elsewhere.url().to_owned())).await?;
    let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &[], &IDLE).await?;
    let hook = agent.subscribed(server.url()).await?;
    agent.dir.switch("shop", "1.0.1")?;
    let notified = agent.hook_when(&hook.id, "it has failed twice", |notified| notified.attempts >= 2).await?;
    assert_eq!(notified.outcome, Outcome::Pending);
    assert!(notified.message.contains("302") && notified.message.contains("not followed"), "{}", notified.message);
    assert!(elsewhere.deliveries().is_empty());
    Ok(())
}

#[tokio::test]
async fn a_webhook_that_answers_gone_is_not_tried_again_for_that_change() -> Result<()> {
    let server = HookServer::start(Answer::Status(StatusCode::GONE)).await?;
    let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &[], &IDLE).await?;
    let hook = agent.subscribed(server.url()).await?;
    agent.dir.switch("shop", "1.0.1")?;
    let notified = agent.hook_when(&hook.id, "it has failed", |notified| notified.outcome == Outcome::Failed).await?;
    assert_eq!(notified.attempts, 1);
    assert!(notified.message.contains("410"), "{}", notified.message);
    assert!(notified.at.is_some());
    Ok(())
}

#[tokio::test]
async fn a_webhook_without_a_listener_is_tried_again() -> Result<()> {
    let nobody = Nobody::new()?;
    let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &[], &IDLE).await?;
    let hook = agent.subscribed(&format!("http://{}/", nobody.address)).await?;
    agent.dir.switch("shop", "1.0.1")?;
    let notified = agent.hook_when(&hook.id, "it has failed twice", |notified| notified.attempts >= 2).await?;
    assert!(notified.outcome == Outcome::Pending && notified.message.contains("can't be reached"), "{notified:?}");
    Ok(())
}
