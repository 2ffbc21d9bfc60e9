//! An agent that starts again, or without the hub.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use nudge_protocol::ConfigUid;
use nudge_protocol::hub::{HubReason, MountedSecrets};
use nudge_protocol::status::ProblemReason;
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::fakes::fake_hub::{Answer as Held, Poll};
use nudge_tests::{Answer, Delivery, FakeHub, HookServer, Pod};

use crate::hub_source::{APP, CATCHES, TWO, USR1};

#[tokio::test]
async fn the_last_good_contents_are_served_again_and_reported_to_the_hub() -> Result<()> {
    let mut hub = FakeHub::start()?;
    let mut pod = Pod::new(&hub)?;
    pod.mount("shop", "0.1.0", "1", &[("lives", b"0")])?;
    let mut client = pod.start().await?;
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    pod.wait_until_served(&mut client, "shop=1.0.1").await?;
    let file = pod.path("state/last-good");
    nudge_tests::eventually(WAIT_TIMEOUT, "the file is written", async || {
        fs::read(&file).is_ok_and(|bytes| bytes.windows(5).any(|part| part == b"1.0.1")).then_some(())
    })
    .await?;
    assert_eq!(fs::metadata(&file)?.permissions().mode() & 0o777, 0o600);
    let (token, authority) = (fs::read(pod.path("share/token"))?, fs::read(pod.path("share/ca.crt"))?);
    hub.down().await?;
    pod.kill().await?;

    let before = hub.polls().len();
    let mut client = pod.start().await?;
    pod.wait_until_served(&mut client, "shop=1.0.1").await?;
    assert_eq!((token, authority), (fs::read(pod.path("share/token"))?, fs::read(pod.path("share/ca.crt"))?));
    hub.up()?;
    let polls = hub.wait_for_polls(before + 1, WAIT_TIMEOUT).await?;
    let held = &polls[before].request.configs[0];
    assert_eq!((&held.uid, held.revision), (&ConfigUid::new("uid-shop"), 2));
    assert_eq!(held.version.as_ref().map(AsRef::as_ref), Some("1.0.1"));
    assert_eq!(held.sha256.as_ref().unwrap().as_str().len(), 64);
    // It is known by its digest, so the hub sends nothing; what follows is taken as ever.
    hub.activate("shop", "1.0.2", &[("lives", b"7")])?;
    pod.wait_until_served(&mut client, "shop=1.0.2").await?;
    Ok(())
}

#[tokio::test]
async fn what_could_not_be_stored_is_stored_as_soon_as_it_can_be() -> Result<()> {
    let mut hub = FakeHub::start()?;
    let mut pod = Pod::new(&hub)?;
    let mut client = pod.start().await?;
    let file = pod.path("state/last-good");
    nudge_tests::eventually(WAIT_TIMEOUT, "the file is written", async || file.exists().then_some(())).await?;
    // As on a full disk: no other file can be written next to it.
    let draft = pod.path("state/last-good.new");
    fs::create_dir(&draft)?;
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    pod.wait_until_served(&mut client, "shop=1.0.1").await?;
    pod.logs("last good contents not stored").await?;
    fs::remove_dir(&draft)?;
    nudge_tests::eventually(WAIT_TIMEOUT, "the file is written again", async || {
        fs::read(&file).is_ok_and(|bytes| bytes.windows(5).any(|part| part == b"1.0.1")).then_some(())
    })
    .await?;
    hub.down().await?;
    pod.kill().await?;
    let mut client = pod.start().await?;
    pod.wait_until_served(&mut client, "shop=1.0.1").await?;
    Ok(())
}

#[tokio::test]
async fn a_damaged_file_is_not_used() -> Result<()> {
    let mut hub = FakeHub::start()?;
    for damage in ["", "garbage", "cut", "flipped"] {
        let mut pod = Pod::new(&hub)?;
        pod.start().await?;
        let file = pod.path("state/last-good");
        nudge_tests::eventually(WAIT_TIMEOUT, "the file is written", async || file.exists().then_some(())).await?;
        pod.kill().await?;
        let mut bytes = fs::read(&file)?;
        match damage {
            "cut" => bytes.truncate(bytes.len() - 1),
            "flipped" => bytes.iter_mut().rev().take(1).for_each(|byte| *byte ^= 1),
            other => bytes = other.into(),
        }
        fs::write(&file, bytes)?;
        hub.down().await?;
        pod.spawn()?;
        pod.logs("last good content").await?;
        pod.logs("poll of the hub failed").await?;
        hub.up()?;
        let mut client = pod.client().await?;
        pod.wait_until_served(&mut client, "shop=1.0.0").await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_pod_starts_with_what_was_mounted_when_the_hub_is_away() -> Result<()> {
    let mut hub = FakeHub::start()?;
    hub.down().await?;
    let mut pod = Pod::new(&hub)?;
    pod.mount("shop", "0.9.0", "1", &[("lives", b"1")])?;
    pod.mount("shop", "0.9.0", "2", &[("secret", &[0xff])])?;
    let mut client = pod.start().await?;
    pod.wait_until_served(&mut client, "shop=0.9.0").await?;
    assert_eq!(client.get("/config/secret").await?.body, &[0xff][..]);
    hub.up()?;
    let status = pod.wait_until_served(&mut client, "shop=1.0.0").await?;
    assert!(status.configs[0].problem.is_none());
    let held = hub.polls()[0].request.configs[0].clone();
    assert_eq!((&held.uid, held.revision, held.sha256.as_ref().unwrap().as_str().len()), (&None, 0, 64));
    Ok(())
}

#[tokio::test]
async fn a_version_of_which_a_part_is_missing_is_not_used() -> Result<()> {
    let mut hub = FakeHub::start()?;
    hub.down().await?;
    let mut pod = Pod::new(&hub)?;
    pod.mount("shop", "0.9.0", "1", &[("lives", b"1")])?;
    fs::create_dir_all(pod.path("bootstrap/shop/0.9.0/2"))?;
    pod.spawn()?;
    pod.logs("version 0.9.0 is incomplete: part 2 is missing").await?;
    hub.up()?;
    let mut client = pod.client().await?;
    pod.wait_until_served(&mut client, "shop=1.0.0").await?;
    Ok(())
}

#[tokio::test]
async fn a_part_with_another_content_than_what_was_sealed_is_not_used() -> Result<()> {
    let mut hub = FakeHub::start()?;
    hub.down().await?;
    let mut pod = Pod::new(&hub)?;
    pod.mount("shop", "0.9.0", &format!("1.sha256-{}", "0".repeat(48)), &[("lives", b"hunter2")])?;
    pod.spawn()?;
    pod.logs("part 1 of the mounted version 0.9.0 has another content than what was sealed").await?;
    hub.up()?;
    let mut client = pod.client().await?;
    pod.wait_until_served(&mut client, "shop=1.0.0").await?;
    Ok(())
}

/// Returns a pod that has mounted a ConfigMap and a Secret of `shop` 0.9.0.
fn with_mounted_secret(hub: &FakeHub) -> Result<Pod> {
    let pod = Pod::new(hub)?;
    pod.mount("shop", "0.9.0", "1", &[("lives", b"1")])?;
    pod.mount("shop", "0.9.0", "2.secret", &[("pin", b"hunter2")])?;
    Ok(pod)
}

/// Has the hub say this of mounted Secrets.
fn compare(hub: &FakeHub, verdict: MountedSecrets, problem: Option<HubReason>) {
    hub.say(|say| {
        let shop = say.config("shop");
        shop.mounted_secrets = Some(verdict);
        if let Some(reason) = problem {
            shop.fail(reason, "the Secret is not what was sealed");
        }
    });
}

const CHANGED: MountedSecrets = MountedSecrets::Changed { part: 2 };

#[tokio::test]
async fn a_secret_that_is_not_what_was_sealed_is_not_served_when_the_hub_answers() -> Result<()> {
    let hub = FakeHub::start()?;
    let mut pod = with_mounted_secret(&hub)?;
    compare(&hub, CHANGED, Some(HubReason::Changed));
    pod.spawn()?;
    pod.logs("part 2 of the mounted version 0.9.0 has another content than what was sealed").await?;
    // The hub has the sealed content again.
    hub.activate("shop", "0.9.0", &[("pin", b"sealed")])?;
    let mut client = pod.client().await?;
    pod.wait_until_served(&mut client, "shop=0.9.0").await?;
    assert_eq!(client.get("/config/pin").await?.body, &b"sealed"[..]);
    let metrics = client.get("/metrics").await?;
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    ensure!(text.contains("nudge_agent_switches_total 0\n"), "the other content was served before: {text}");
    let polls = hub.polls();
    let digests = |poll: &Poll| poll.request.configs.first().map_or(0, |claim| claim.mounted_secrets.len());
    assert_eq!(digests(&polls[0]), 1);
    assert!(polls[1..].iter().all(|poll| digests(poll) == 0), "it is asked once");
    let digest = polls[0].request.configs[0].mounted_secrets[0].as_str();
    let log = pod.agent.as_ref().context("no agent")?.log();
    ensure!(digest.len() == 71 && !log.contains(&digest[7..20]), "the log has the digest {digest}: {log}");
    Ok(())
}

#[tokio::test]
async fn a_secret_that_is_what_was_sealed_is_served_although_its_object_is_gone() -> Result<()> {
    let hub = FakeHub::start()?;
    let mut pod = with_mounted_secret(&hub)?;
    compare(&hub, MountedSecrets::Sealed, Some(HubReason::Changed));
    let mut client = pod.start().await?;
    let status = pod.wait_until_served(&mut client, "shop=0.9.0").await?;
    assert_eq!(client.get("/config/pin").await?.body, &b"hunter2"[..]);
    let problem = status.configs[0].problem.clone().context("no problem")?;
    assert_eq!(
        (problem.reason, problem.message.as_str()),
        (ProblemReason::Changed, "the Secret is not what was sealed")
    );
    Ok(())
}

#[tokio::test]
async fn secrets_are_served_uncompared_while_the_hub_is_away_and_compared_when_it_is_back() -> Result<()> {
    let mut hub = FakeHub::start()?;
    hub.down().await?;
    let mut pod = with_mounted_secret(&hub)?;
    let mut client = pod.start().await?;
    let status = pod.wait_until_served(&mut client, "shop=0.9.0").await?;
    assert_eq!(status.configs[0].problem.clone().context("no problem")?.reason, ProblemReason::NotCompared);
    // An agent that starts again has not forgotten that.
    pod.kill().await?;
    let mut client = pod.start().await?;
    pod.wait_until_served(&mut client, "shop=0.9.0").await?;
    compare(&hub, CHANGED, Some(HubReason::Changed));
    hub.up()?;
    pod.status_when(&mut client, WAIT_TIMEOUT, "the difference is reported", |status| {
        let problem = status.configs[0].problem.as_ref();
        problem.is_some_and(|problem| {
            problem.reason == ProblemReason::Changed
                && problem.message.starts_with("part 2 of the mounted version 0.9.0")
        })
    })
    .await?;
    hub.activate("shop", "0.9.0", &[("pin", b"sealed")])?;
    nudge_tests::eventually(WAIT_TIMEOUT, "the sealed content is served", async || {
        (client.get("/config/pin").await.ok()?.body == b"sealed"[..]).then_some(())
    })
    .await
}

#[tokio::test]
async fn a_hub_that_does_not_answer_is_not_waited_for_long() -> Result<()> {
    let hub = FakeHub::start()?;
    hub.say(|say| say.always = Some(Held::Break(Duration::from_mins(1))));
    let mut pod = with_mounted_secret(&hub)?;
    pod.spawn()?;
    let mut client = pod.client().await?;
    let status = pod.wait_until_served(&mut client, "shop=0.9.0").await?;
    assert_eq!(status.configs[0].problem.clone().context("no problem")?.reason, ProblemReason::NotCompared);
    assert!(hub.reports().is_empty());
    Ok(())
}

#[tokio::test]
async fn the_hub_is_waited_for_where_what_was_mounted_does_not_fit() -> Result<()> {
    let hub = FakeHub::start()?;
    hub.activate("keys", "1", &[("key", b"k")])?;
    let mut pod = Pod::new(&hub)?;
    pod.configs = TWO;
    // One of them alone fits.
    let value = vec![b'x'; 900_000];
    for config in ["shop", "keys"] {
        for part in ["1", "2"] {
            pod.mount(config, "0.9.0", part, &[(format!("{config}-{part}").as_str(), &value[..])])?;
        }
    }
    let mut client = pod.start().await?;
    pod.wait_until_served(&mut client, "shop=1.0.0,keys=1").await?;
    let metrics = client.get("/metrics").await?;
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    ensure!(text.contains("nudge_agent_switches_total 0\n"), "the one that fits was served alone: {text}");
    Ok(())
}

#[tokio::test]
async fn half_of_the_configs_is_served_only_when_the_hub_does_not_answer() -> Result<()> {
    let mut hub = FakeHub::start()?;
    hub.activate("keys", "1", &[("key", b"k")])?;
    let mut pod = Pod::new(&hub)?;
    pod.configs = TWO;
    pod.mount("shop", "0.9.0", "1", &[("lives", b"1")])?;
    let mut client = pod.start().await?;
    pod.wait_until_served(&mut client, "shop=1.0.0,keys=1").await?;
    let metrics = client.get("/metrics").await?;
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    ensure!(text.contains("nudge_agent_switches_total 0\n"), "the half was served: {text}");

    let mut pod = Pod::new(&hub)?;
    pod.configs = TWO;
    pod.mount("shop", "0.9.0", "1", &[("lives", b"1")])?;
    hub.down().await?;
    let mut client = pod.start().await?;
    pod.wait_until_served(&mut client, "shop=0.9.0").await?;
    Ok(())
}

#[tokio::test]
async fn it_ends_soon_when_asked_to_and_its_memory_is_its_own() -> Result<()> {
    let hub = FakeHub::start()?;
    let mut pod = Pod::new(&hub)?;
    pod.start().await?;
    let agent = pod.agent.as_mut().ok_or_else(|| anyhow::anyhow!("no agent"))?;
    if !nix::unistd::geteuid().is_root() {
        ensure!(fs::read(format!("/proc/{}/environ", agent.pid())).is_err(), "its environment can be read");
    }
    agent.process().signal(Signal::SIGTERM)?;
    let status = agent.process().wait_for_exit(WAIT_TIMEOUT).await?;
    assert_eq!(status.code(), Some(0));
    Ok(())
}

/// Waits until the agent's record of notifications is as expected.
async fn wait_for_record(pod: &Pod, what: &str, expected: impl Fn(&str) -> bool) -> Result<()> {
    let recorded =
        async || fs::read_to_string(pod.path("state/notified")).is_ok_and(|text| expected(&text)).then_some(());
    nudge_tests::eventually(WAIT_TIMEOUT, what, recorded).await
}

/// Waits until the agent would serve this version after a restart.
async fn wait_until_kept(pod: &Pod, version: &str) -> Result<()> {
    let file = pod.path("state/last-good");
    let exists =
        || fs::read(&file).is_ok_and(|bytes| bytes.windows(version.len()).any(|part| part == version.as_bytes()));
    nudge_tests::eventually(WAIT_TIMEOUT, "the version is kept", async || exists().then_some(())).await
}

#[tokio::test]
async fn a_signal_that_was_due_when_the_agent_was_killed_is_sent_once_when_it_is_back() -> Result<()> {
    let mut hub = FakeHub::start()?;
    let mut pod = Pod::new(&hub)?.with(&USR1);
    // The hub has not reported yet which processes are the container's, so the signal waits.
    let mut client = pod.start().await?;
    wait_for_record(&pod, "the record has the version that the container starts with", |text| text.contains("app"))
        .await?;
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    pod.wait_until_served(&mut client, "shop=1.0.1").await?;
    wait_until_kept(&pod, "1.0.1").await?;
    let before = fs::read_to_string(pod.path("state/notified"))?;
    pod.kill().await?;
    hub.down().await?;

    pod.start_app(APP, &CATCHES).await?;
    pod.start().await?;
    pod.app_says(1, "SIGUSR1").await?;
    wait_for_record(&pod, "the record has the notification", |text| text != before).await?;
    // The notification is not repeated, with or without the hub.
    pod.kill().await?;
    let mut client = pod.start().await?;
    pod.wait_until_served(&mut client, "shop=1.0.1").await?;
    pod.kill().await?;
    hub.up()?;
    pod.start().await?;
    pod.logs("contact with the hub established").await?;
    hub.activate("shop", "1.0.2", &[("lives", b"7")])?;
    pod.app_says(2, "SIGUSR1").await?;
    assert_eq!(pod.app_output().matches("SIGUSR1").count(), 2, "{}", pod.app_output());
    Ok(())
}

#[tokio::test]
async fn a_change_while_the_agent_was_away_is_notified_although_nothing_was_stored() -> Result<()> {
    let hub = FakeHub::start()?;
    let mut pod = Pod::new(&hub)?.with(&USR1);
    pod.start_app(APP, &CATCHES).await?;
    pod.start().await?;
    wait_for_record(&pod, "the record has the version that the container starts with", |text| text.contains("app"))
        .await?;
    wait_until_kept(&pod, "1.0.0").await?;
    pod.kill().await?;
    fs::remove_file(pod.path("state/last-good"))?;
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    pod.start().await?;
    pod.app_says(1, "SIGUSR1").await
}

#[tokio::test]
async fn a_webhook_that_was_due_when_the_agent_was_killed_is_posted_once_when_it_is_back() -> Result<()> {
    let hub = FakeHub::start()?;
    let server = HookServer::start(Answer::Status(hyper::StatusCode::SERVICE_UNAVAILABLE)).await?;
    let mut pod = Pod::new(&hub)?.with(&["--notify", "app=webhook", "--webhooks", &format!("app={}", server.url())]);
    let mut client = pod.start().await?;
    wait_for_record(&pod, "the record has the version that the container starts with", |text| text.contains("app"))
        .await?;
    let before = fs::read_to_string(pod.path("state/notified"))?;
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    pod.wait_until_served(&mut client, "shop=1.0.1").await?;
    wait_until_kept(&pod, "1.0.1").await?;
    pod.kill().await?;
    let refused = server.deliveries().len();
    server.answer(Answer::Status(hyper::StatusCode::NO_CONTENT));
    pod.start().await?;
    wait_for_record(&pod, "the record has the notification", |text| text != before).await?;
    pod.kill().await?;
    let mut client = pod.start().await?;
    hub.activate("shop", "1.0.2", &[("lives", b"7")])?;
    pod.wait_until_served(&mut client, "shop=1.0.2").await?;
    let deliveries = server.wait_for(refused + 2, WAIT_TIMEOUT).await?;
    let content =
        |delivery: &Delivery| -> Result<(String, bool)> { Ok((delivery.version()?, delivery.event()?.data.truncated)) };
    // The agent does not know any more which keys had changed before it was killed.
    assert_eq!(content(&deliveries[refused])?, ("1.0.1".to_owned(), true));
    assert_eq!(content(&deliveries[refused + 1])?, ("1.0.2".to_owned(), false));
    Ok(())
}
