//! The assigned versions arrive completely, once, and never in an older state.

use anyhow::{Result, ensure};
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::kubelet::pod::served;
use nudge_tests::{FakeHub, Pod, eventually};

use crate::hub_source::{APP, CATCHES, TWO, USR1};

#[tokio::test]
async fn the_first_content_is_served_and_a_change_is_signalled() -> Result<()> {
    let hub = FakeHub::start()?;
    let mut pod = Pod::new(&hub)?.with(&USR1);
    pod.start_app(APP, &CATCHES).await?;
    let mut client = pod.start().await?;
    let status = client.status().await?;
    assert_eq!((served(&status).as_str(), status.source.as_str()), ("shop=1.0.0", "hub"));
    assert_eq!(client.get("/config/lives").await?.body, &b"3"[..]);

    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    pod.app_says(1, "SIGUSR1").await?;
    assert_eq!(client.get("/config/lives").await?.body, &b"5"[..]);
    hub.activate("shop", "1.0.2", &[("lives", b"7")])?;
    pod.app_says(2, "SIGUSR1").await?;
    assert_eq!(client.get("/config/lives").await?.body, &b"7"[..]);
    assert!(hub.polls().iter().all(|poll| poll.connection == hub.polls()[0].connection), "one connection is enough");
    Ok(())
}

#[tokio::test]
async fn nothing_new_is_no_news() -> Result<()> {
    let hub = FakeHub::start()?;
    hub.say(|say| say.settings.wait_seconds = 1);
    let mut pod = Pod::new(&hub)?;
    let mut client = pod.start().await?;
    let first = client.status().await?;
    let before = hub.polls().len();
    let polls = hub.wait_for_polls(before + 2, WAIT_TIMEOUT).await?;
    let last = &polls[polls.len() - 1];
    assert_eq!(last.request.wait_seconds, 1);
    assert_eq!(last.request.configs[0].version.as_ref().map(AsRef::as_ref), Some("1.0.0"));
    let later = client.status().await?;
    assert_eq!(first.etag, later.etag);
    ensure!(later.age_seconds <= 3 && later.contact.is_some_and(|contact| contact.connected), "it is in contact");
    Ok(())
}

#[tokio::test]
async fn configs_of_one_reply_change_together_and_are_notified_once() -> Result<()> {
    let hub = FakeHub::start()?;
    hub.activate("keys", "1", &[("key", b"old"), ("lives", b"9")])?;
    let mut pod = Pod::new(&hub)?.with(&USR1);
    pod.configs = TWO;
    pod.start_app(APP, &CATCHES).await?;
    let mut client = pod.start().await?;
    pod.wait_until_served(&mut client, "shop=1.0.0,keys=1").await?;
    assert_eq!(client.get("/config/lives").await?.body, &b"9"[..], "the later config wins");

    for round in 2..12 {
        let version = round.to_string();
        hub.say(|say| {
            for name in ["shop", "keys"] {
                // The values are known to be good.
                let _ = say.config(name).set(&version, &[(name, version.as_bytes())]);
            }
        });
        let both = format!("shop={version},keys={version}");
        let mixed = eventually(WAIT_TIMEOUT, "both have changed", async || {
            let served = served(&client.status().await.ok()?);
            let old = format!("shop={0},keys={0}", round - 1);
            let is_old = served == old || served == "shop=1.0.0,keys=1";
            if served == both { Some(None) } else { (!is_old).then_some(Some(served)) }
        });
        assert_eq!(mixed.await?, None, "one has changed without the other");
        pod.app_says(round - 1, "SIGUSR1").await?;
    }
    let metrics = client.get("/metrics").await?;
    ensure!(String::from_utf8_lossy(&metrics.body).contains("nudge_agent_switches_total 10\n"), "10 switches");
    ensure!(!pod.app_output().contains("SIGUSR1 SIGUSR1"));
    assert_eq!(pod.app_output().matches("SIGUSR1").count(), 10, "one signal for each");
    Ok(())
}

#[tokio::test]
async fn a_lower_revision_is_ignored_and_another_uid_replaces() -> Result<()> {
    let hub = FakeHub::start()?;
    hub.say(|say| say.config("shop").revision = 40);
    let mut pod = Pod::new(&hub)?;
    let mut client = pod.start().await?;
    hub.say(|say| {
        let _ = say.config("shop").set("0.9.0", &[("lives", b"1")]);
        say.config("shop").revision = 39;
    });
    let notified = pod.status_when(&mut client, WAIT_TIMEOUT, "the older revision is noticed", |status| {
        status.contact.as_ref().is_some_and(|contact| contact.message.contains("older than 40"))
    });
    assert_eq!(served(&notified.await?), "shop=1.0.0");
    let polls = hub.polls();
    ensure!(polls.iter().all(|poll| poll.request.configs[0].revision != 39), "no poll claims to hold it");

    hub.say(|say| {
        let shop = say.config("shop");
        (shop.uid, shop.revision) = ("another".to_owned(), 1);
    });
    let status = pod.wait_until_served(&mut client, "shop=0.9.0").await?;
    pod.status_when(&mut client, WAIT_TIMEOUT, "contact is good", |status| {
        status.contact.as_ref().is_some_and(|contact| contact.connected && contact.message.is_empty())
    })
    .await?;
    assert!(status.configs[0].problem.is_none());
    Ok(())
}

#[tokio::test]
async fn what_a_later_hub_adds_is_ignored() -> Result<()> {
    let hub = FakeHub::start()?;
    hub.say(|say| say.unknown_fields = true);
    let mut pod = Pod::new(&hub)?;
    let mut client = pod.start().await?;
    hub.activate("shop", "2", &[("lives", b"1")])?;
    pod.wait_until_served(&mut client, "shop=2").await?;
    Ok(())
}

#[tokio::test]
async fn large_contents_arrive_whole() -> Result<()> {
    let hub = FakeHub::start()?;
    let mut pod = Pod::new(&hub)?;
    let mut client = pod.start().await?;
    for fill in *b"abc" {
        let parts: Vec<Vec<u8>> = (0..3).map(|_| vec![fill; 850 * 1024]).collect();
        let values: Vec<(&str, &[u8])> =
            ["one", "two", "three"].into_iter().zip(&parts).map(|(key, value)| (key, &value[..])).collect();
        let version = char::from(fill).to_string();
        hub.activate("shop", &version, &values)?;
        pod.wait_until_served(&mut client, &format!("shop={version}")).await?;
        for (key, value) in &values {
            ensure!(client.get(&format!("/config/{key}")).await?.body == *value, "{key} is not what was sent");
        }
    }
    let metadata = std::fs::metadata(pod.path("state/last-good"))?;
    ensure!(metadata.len() > 2_500_000, "it is kept for a restart");
    Ok(())
}

#[tokio::test]
async fn one_content_under_two_names_is_not_sent_twice() -> Result<()> {
    let hub = FakeHub::start()?;
    let mut pod = Pod::new(&hub)?;
    let mut client = pod.start().await?;
    hub.say(|say| {
        let shop = say.config("shop");
        (shop.version, shop.revision) = ("1.0.0-again".to_owned(), shop.revision + 1);
    });
    pod.wait_until_served(&mut client, "shop=1.0.0-again").await?;
    assert_eq!(client.get("/config/lives").await?.body, &b"3"[..]);
    Ok(())
}
