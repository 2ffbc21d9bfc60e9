//! Losing the hub and finding it again.

use std::time::Duration;

use anyhow::{Result, ensure};
use nudge_protocol::status::Status;
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::fakes::fake_hub::Answer;
use nudge_tests::{Client, FakeHub, Pod};

use crate::hub_source::{APP, CATCHES, USR1};

async fn fails_with(pod: &Pod, client: &mut Client, reason: &str) -> Result<Status> {
    let description = format!("contact fails with {reason}");
    let failed = |status: &Status| status.contact.as_ref().is_some_and(|contact| contact.reason == reason);
    pod.status_when(client, WAIT_TIMEOUT, &description, failed).await
}

#[tokio::test]
async fn a_hub_that_goes_is_missed_by_nobody_and_caught_up_with_when_it_returns() -> Result<()> {
    let mut hub = FakeHub::start()?;
    let mut pod = Pod::new(&hub)?.with(&USR1);
    pod.start_app(APP, &CATCHES).await?;
    let mut client = pod.start().await?;
    hub.down().await?;
    let status = fails_with(&pod, &mut client, "Unreachable").await?;
    ensure!(status.contact.as_ref().is_some_and(|contact| !contact.connected && contact.failures > 0));
    assert_eq!(client.get("/config/lives").await?.body, &b"3"[..]);
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    hub.up()?;
    pod.app_says(1, "SIGUSR1").await?;
    assert_eq!(client.get("/config/lives").await?.body, &b"5"[..]);
    let before = hub.reports().len();
    hub.cut().await?;
    // A hub that was away may have lost the report: it is sent again.
    let what = "the report is repeated";
    let repeated = async || (hub.reports().len() > before).then_some(());
    nudge_tests::eventually(WAIT_TIMEOUT, what, repeated).await?;
    pod.logs("contact with the hub established").await
}

#[tokio::test]
async fn a_refused_token_is_read_again() -> Result<()> {
    let hub = FakeHub::start()?;
    let mut pod = Pod::new(&hub)?;
    hub.say(|say| say.tokens = vec!["token-2".to_owned()]);
    pod.spawn()?;
    pod.logs("Unauthorized").await?;
    pod.write_token("token-2\n")?;
    let mut client = pod.client().await?;
    pod.wait_until_served(&mut client, "shop=1.0.0").await?;
    let polls = hub.polls();
    assert_eq!(polls.first().map(|poll| poll.token.as_str()), Some("token-1"));
    assert_eq!(polls.last().map(|poll| poll.token.as_str()), Some("token-2"));
    let log = pod.agent.as_ref().map(nudge_tests::Agent::log).unwrap_or_default();
    ensure!(!log.contains("token-1") && !log.contains("token-2"), "a token in the log: {log}");
    Ok(())
}

#[tokio::test]
async fn a_pod_that_is_not_allowed_says_so_and_asks_seldom() -> Result<()> {
    let mut hub = FakeHub::start()?;
    let mut pod = Pod::new(&hub)?;
    let mut client = pod.start().await?;
    hub.say(|say| say.always = Some(Answer::Status(403, None)));
    hub.cut().await?;
    let status = fails_with(&pod, &mut client, "Forbidden").await?;
    let message = status.contact.map(|contact| contact.message).unwrap_or_default();
    ensure!(message.contains("403: as the test wants it"), "{message}");
    pod.logs("next poll planned").await?;
    let metrics = client.get("/metrics").await?;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    ensure!(metrics.contains(r#"nudge_agent_hub_polls_total{outcome="Forbidden"} 1"#), "{metrics}");
    Ok(())
}

#[tokio::test]
async fn a_busy_hub_is_given_the_time_that_it_requests_and_a_new_connection() -> Result<()> {
    let hub = FakeHub::start()?;
    hub.say(|say| say.next = [Answer::Status(503, Some(1)), Answer::Status(429, Some(1))].into());
    let mut pod = Pod::new(&hub)?;
    let mut client = pod.start().await?;
    pod.wait_until_served(&mut client, "shop=1.0.0").await?;
    let polls = hub.polls();
    for pair in polls[..3].windows(2) {
        ensure!(pair[1].at - pair[0].at >= Duration::from_secs(1), "asked again too soon");
        assert_ne!(pair[0].connection, pair[1].connection, "another replica may know more");
    }
    Ok(())
}

#[tokio::test]
async fn another_authority_is_trusted_as_soon_as_it_stands_in_the_bundle() -> Result<()> {
    let mut hub = FakeHub::start()?;
    let mut pod = Pod::new(&hub)?;
    let mut client = pod.start().await?;
    let old = hub.ca().to_owned();
    hub.rotate()?;
    hub.cut().await?;
    let status = fails_with(&pod, &mut client, "Tls").await?;
    ensure!(status.contact.is_some_and(|contact| contact.message.contains("CA bundle")), "the message says what to do");
    // Both, as during a rotation.
    std::fs::write(pod.path("hub-ca.crt"), format!("{old}{}", hub.ca()))?;
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    pod.wait_until_served(&mut client, "shop=1.0.1").await?;
    Ok(())
}

#[tokio::test]
async fn what_was_injected_is_all_that_is_trusted_whatever_a_file_holds() -> Result<()> {
    let (mut hub, foreign) = (FakeHub::start()?, FakeHub::start()?);
    let ca = hub.ca().to_owned();
    let mut pod = Pod::new(&hub)?.with(&["--hub-ca", &ca]);
    // Objects that users of the namespace may write are no authority in addition to the injected bundle.
    std::fs::write(pod.path("hub-ca.crt"), foreign.ca())?;
    let mut client = pod.start().await?;
    pod.wait_until_served(&mut client, "shop=1.0.0").await?;
    std::fs::remove_file(pod.path("hub-ca.crt"))?;
    hub.cut().await?;
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    pod.wait_until_served(&mut client, "shop=1.0.1").await?;

    // If the name leads to a foreign hub, that hub is not trusted because of the content of that file alone.
    let mut pod = Pod::new(&foreign)?.with(&["--hub-ca", &ca]);
    pod.mount("shop", "0.9.0", "1", &[("lives", b"2")])?;
    let mut client = pod.start().await?;
    fails_with(&pod, &mut client, "Tls").await?;
    assert_eq!(client.get("/config/lives").await?.body, &b"2"[..]);
    ensure!(foreign.polls().is_empty(), "it was shown a token");
    Ok(())
}

#[tokio::test]
async fn something_that_cuts_held_polls_is_met_by_polls_that_are_not_held() -> Result<()> {
    let hub = FakeHub::start()?;
    let mut pod = Pod::new(&hub)?.with(&["--poll-interval", "1"]);
    // Everything held is cut after a few seconds; what is not held passes. From the start, for a poll that is held
    // already is not cut.
    hub.say(|say| say.cut_held = Some(Duration::from_millis(5500)));
    let mut client = pod.start().await?;
    let within = Duration::from_mins(1);
    pod.status_when(&mut client, within, "polls are not held any more", |status| {
        status.contact.as_ref().is_some_and(|contact| contact.interval && contact.connected)
    })
    .await?;
    let count = hub.polls().len();
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    pod.wait_until_served(&mut client, "shop=1.0.1").await?;
    let polls = hub.wait_for_polls(count + 2, WAIT_TIMEOUT).await?;
    ensure!(polls[count..].iter().all(|poll| poll.request.wait_seconds == 0));
    Ok(())
}

#[tokio::test]
async fn the_hub_may_have_a_name() -> Result<()> {
    let hub = FakeHub::start()?;
    let mut pod = Pod::new(&hub)?;
    pod.hub = pod.hub.replace("127.0.0.1", "localhost");
    let mut client = pod.start().await?;
    pod.wait_until_served(&mut client, "shop=1.0.0").await?;
    Ok(())
}
