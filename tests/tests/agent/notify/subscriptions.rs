//! Which webhooks may subscribe, how many, and until when.

use anyhow::Result;
use hyper::{Method, StatusCode};
use nudge_protocol::ErrorBody;
use nudge_protocol::webhooks::WebhookList;
use nudge_tests::agent::IDLE;
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::{AgentUnderTest, HookServer, eventually};

use super::signalled_app::was_delivered;

#[tokio::test]
async fn a_webhook_that_points_outside_is_refused_with_what_to_do() -> Result<()> {
    // TEST-NET-1 of RFC 5737: no host has this address.
    let url = "http://192.0.2.1:8080/changed";
    let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &[], &IDLE).await?;
    let refused = agent.subscribe(url).await?;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    let body: ErrorBody = serde_json::from_slice(&refused.body)?;
    assert!(body.message.contains("--webhook-allow 192.0.2.1:8080"), "{}", body.message);
    for other in ["http://example.com/", "https://127.0.0.1/", "http://u:p@127.0.0.1/"] {
        assert_eq!(agent.subscribe(other).await?.status, StatusCode::UNPROCESSABLE_ENTITY, "{other}");
    }

    let mut allowing =
        AgentUnderTest::start(AgentUnderTest::shop()?, &["--webhook-allow", "192.0.2.1:8080"], &IDLE).await?;
    assert_eq!(allowing.subscribe(url).await?.status, StatusCode::CREATED);
    let other_port = allowing.subscribe("http://192.0.2.1:8081/").await?;
    assert_eq!(other_port.status, StatusCode::UNPROCESSABLE_ENTITY);
    Ok(())
}

#[tokio::test]
async fn the_same_webhook_twice_is_one_and_the_seventeenth_is_refused() -> Result<()> {
    let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &[], &IDLE).await?;
    for number in 0..16 {
        let url = format!("http://127.0.0.1:9/{number}");
        assert_eq!(agent.subscribe(&url).await?.status, StatusCode::CREATED, "{number}");
        assert_eq!(agent.subscribe(&url).await?.status, StatusCode::OK, "{number}");
    }
    let refused = agent.subscribe("http://127.0.0.1:9/16").await?;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    let body: ErrorBody = serde_json::from_slice(&refused.body)?;
    assert!(body.message.contains("DELETE /hooks/"), "{}", body.message);

    let list: WebhookList = serde_json::from_slice(&agent.client.get("/hooks").await?.body)?;
    assert_eq!(list.hooks.len(), 16);
    let path = format!("/hooks/{}", list.hooks[0].id);
    assert_eq!(agent.send(Method::DELETE, &path, String::new()).await?.status, StatusCode::NO_CONTENT);
    assert_eq!(agent.subscribe("http://127.0.0.1:9/16").await?.status, StatusCode::CREATED);
    Ok(())
}

#[tokio::test]
async fn a_webhook_that_is_cancelled_gets_nothing_more() -> Result<()> {
    let (cancelled, other) = (HookServer::willing().await?, HookServer::willing().await?);
    let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &[], &IDLE).await?;
    let hook = agent.subscribed(cancelled.url()).await?;
    agent.subscribed(other.url()).await?;
    agent.dir.switch("shop", "1.0.1")?;
    cancelled.notified_of("1.0.1", WAIT_TIMEOUT).await?;
    let path = format!("/hooks/{}", hook.id);
    assert_eq!(agent.send(Method::DELETE, &path, String::new()).await?.status, StatusCode::NO_CONTENT);
    assert_eq!(agent.send(Method::DELETE, &path, String::new()).await?.status, StatusCode::NOT_FOUND);
    agent.dir.switch("shop", "1.0.2")?;
    other.notified_of("1.0.2", WAIT_TIMEOUT).await?;
    // Both would be notified at the same moment, so the cancelled one would have its event by now.
    eventually(WAIT_TIMEOUT, "the other is done", async || {
        agent
            .client
            .status()
            .await
            .is_ok_and(|status| status.hooks.iter().all(|hook| was_delivered(&hook.notified)))
            .then_some(())
    })
    .await?;
    assert_eq!(cancelled.deliveries().len(), 1);
    Ok(())
}
