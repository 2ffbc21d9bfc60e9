//! The events that a webhook gets.

use std::path::Path;

use anyhow::Result;
use hyper::Method;
use nudge_tests::agent::IDLE;
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::fakes::standard_webhooks::Verifier;
use nudge_tests::{AgentUnderTest, HookServer};

use super::signalled_app::was_delivered;

#[tokio::test]
async fn a_webhook_is_signed_as_specified_and_holds_no_value() -> Result<()> {
    let Some(verifier) = Verifier::in_folder(Path::new(env!("CARGO_TARGET_TMPDIR")))? else { return Ok(()) };
    let dir = AgentUnderTest::shop()?;
    dir.write_version("shop", "2.0.0", [("lives", "hunter2-new"), ("greeting", "hunter2-added")])?;
    let server = HookServer::willing().await?;
    let mut agent = AgentUnderTest::start(dir, &["--notify", "webhook"], &IDLE).await?;
    let hook = agent.subscribed(server.url()).await?;
    assert_eq!(hook.etag, agent.client.status().await?.etag);
    agent.dir.switch("shop", "2.0.0")?;
    let delivery = server.notified_of("2.0.0", WAIT_TIMEOUT).await?;

    assert_eq!(delivery.method, Method::POST);
    assert_eq!(delivery.target, "/changed?by=nudge");
    assert_eq!(delivery.header("content-type"), "application/json");
    let event = delivery.event()?;
    assert_eq!(event.kind, "config.changed");
    assert_eq!(event.data.changed, ["greeting", "lives"]);
    assert!(!event.data.truncated);
    assert!(!delivery.body.contains("hunter2") && !delivery.body.contains(&agent.access.token), "{}", delivery.body);

    let token = agent.access.token.clone();
    assert!(verifier.verify(&delivery, &token)?);
    let forged = nudge_tests::Delivery { body: delivery.body.replace("2.0.0", "9.9.9"), ..delivery.clone() };
    assert!(!verifier.verify(&forged, &token)?, "the signature fits another body too");
    let other = AgentUnderTest::start(AgentUnderTest::shop()?, &[], &IDLE).await?.access.token;
    assert!(!verifier.verify(&delivery, &other)?, "the signature fits another token too");

    let notified = agent.hook_when(&hook.id, "the webhook is delivered", was_delivered).await?;
    assert_eq!(notified.attempts, 1);
    Ok(())
}

#[tokio::test]
async fn an_event_lists_no_more_than_256_keys_and_says_so() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    dir.write_version("shop", "2.0.0", (0..300).map(|n| (format!("key-{n:03}"), "x")))?;
    let server = HookServer::willing().await?;
    let mut agent = AgentUnderTest::start(dir, &[], &IDLE).await?;
    agent.subscribed(server.url()).await?;
    agent.dir.switch("shop", "2.0.0")?;
    let event = server.notified_of("2.0.0", WAIT_TIMEOUT).await?.event()?;
    assert!(event.data.truncated);
    assert_eq!((event.data.changed.len(), event.data.changed[0].as_str()), (256, "key-000"));
    Ok(())
}

#[tokio::test]
async fn the_flag_subscribes_for_the_child_and_counts_as_its_acknowledgement() -> Result<()> {
    let server = HookServer::willing().await?;
    let arguments = ["--notify", "webhook", "--webhook", server.url()];
    let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &arguments, &IDLE).await?;
    let hooks = agent.client.status().await?.hooks;
    assert_eq!(hooks.iter().map(|hook| hook.url.as_str()).collect::<Vec<_>>(), [server.url()]);
    agent.dir.switch("shop", "1.0.1")?;
    server.notified_of("1.0.1", WAIT_TIMEOUT).await?;
    let container = agent.notified_when("the child counts as notified", was_delivered).await?;
    assert!(container.acknowledged, "{container:?}");
    Ok(())
}
