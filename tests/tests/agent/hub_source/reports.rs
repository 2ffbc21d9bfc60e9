//! The agent's reports to the hub, and their rate.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http_body_util::Full;
use hyper::Method;
use nudge_protocol::hub::PodContainer;
use nudge_protocol::status::Outcome;
use nudge_protocol::{Ack, ConfigUid, ContainerName, Notify, NotifySignal};
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::{FakeHub, Pod, eventually};

use crate::hub_source::{APP, CATCHES, USR1};

fn container(name: &str, id: &str, ended: bool) -> Result<PodContainer> {
    Ok(PodContainer { name: ContainerName::new(name)?, id: id.to_owned(), ended })
}

#[tokio::test]
async fn a_report_has_what_is_served_and_how_it_was_taken_and_no_value() -> Result<()> {
    let hub = FakeHub::start()?;
    let mut pod = Pod::new(&hub)?.with(&USR1);
    pod.start_app(APP, &CATCHES).await?;
    pod.start().await?;
    let first = hub.wait_for_report(WAIT_TIMEOUT, "the first report", |report| report.acknowledged).await?;
    assert_eq!(first.request.containers[0].outcome, Outcome::NothingYet, "it starts with what is served");
    hub.activate("shop", "1.0.1", &[("lives", b"hunter2")])?;
    let report = hub.wait_for_report(WAIT_TIMEOUT, "the app has it", |report| {
        report.acknowledged && report.containers[0].outcome == Outcome::Delivered
    });
    let report = report.await?;
    let config = &report.request.configs[0];
    assert_eq!((&config.uid, config.revision), (&ConfigUid::new("uid-shop"), 2));
    assert_eq!(config.version.as_ref().map(AsRef::as_ref), Some("1.0.1"));
    assert_eq!(config.problem, None);
    let app = &report.request.containers[0];
    assert_eq!((app.name.as_str(), app.notify), ("app", Notify::Signal(NotifySignal::Usr1)));
    assert_eq!((app.ack, app.acknowledged), (Ack::Delivered, true));
    ensure!(!report.text.contains("hunter2") && !report.text.contains("lives"), "{}", report.text);
    Ok(())
}

#[tokio::test]
async fn a_change_costs_one_answer_one_report_and_no_connection() -> Result<()> {
    let hub = FakeHub::start()?;
    let mut pod = Pod::new(&hub)?.with(&USR1);
    pod.start_app(APP, &CATCHES).await?;
    pod.start().await?;
    hub.wait_for_report(WAIT_TIMEOUT, "the first report", |report| report.acknowledged).await?;
    for round in 1..=3 {
        let last = hub.reports().pop().context("a report")?.at;
        let held = async || hub.polls().pop().filter(|poll| poll.at > last && poll.request.wait_seconds > 0);
        eventually(WAIT_TIMEOUT, "the poll after the report is held", held).await?;
        let (polls, reports, version) = (hub.polls().len(), hub.reports().len(), round.to_string());
        hub.activate("shop", &version, &[("lives", b"5")])?;
        hub.wait_for_report(WAIT_TIMEOUT, "the app has it", |report| {
            let config = report.configs.first().and_then(|config| config.version.as_ref());
            report.acknowledged && config.is_some_and(|served| served.as_str() == version)
        })
        .await?;
        hub.wait_for_polls(polls + 1, WAIT_TIMEOUT).await?;
        ensure!(hub.reports().len() == reports + 1, "{} reports", hub.reports().len() - reports);
        // One more where the application was not notified before the next poll.
        ensure!(hub.polls().len() <= polls + 2, "{} polls", hub.polls().len() - polls);
    }
    ensure!(hub.connections() == 1, "{} connections", hub.connections());
    Ok(())
}

#[tokio::test]
async fn a_late_acknowledgement_ends_the_poll_that_is_held() -> Result<()> {
    let hub = FakeHub::start()?;
    let mut pod = Pod::new(&hub)?.with(&USR1).with(&["--ack", "fetched"]);
    pod.start_app(APP, &CATCHES).await?;
    let mut client = pod.start().await?;
    for version in ["1.0.1", "1.0.2"] {
        hub.activate("shop", version, &[("lives", version.as_bytes())])?;
        let pending = hub.wait_for_report(WAIT_TIMEOUT, "the signal is sent", |report| {
            report.configs[0].version.as_ref().is_some_and(|served| served.as_str() == version)
        });
        let pending = pending.await?;
        ensure!(!pending.request.acknowledged);
        let held = async || hub.polls().pop().filter(|poll| poll.at > pending.at && poll.request.wait_seconds > 0);
        eventually(WAIT_TIMEOUT, "the next poll is held", held).await?;
        let request = client.request(Method::GET, "/config").header("nudge-container", "app").body(Full::default())?;
        client.send(request).await?;
        hub.wait_for_report(WAIT_TIMEOUT, "it has fetched", |report| report.acknowledged).await?;
    }
    ensure!(hub.connections() == 1, "{} connections", hub.connections());
    Ok(())
}

#[tokio::test]
async fn a_revision_that_concerns_other_pods_is_taken_in_and_changes_nothing() -> Result<()> {
    let hub = FakeHub::start()?;
    hub.say(|say| say.settings.wait_seconds = 1);
    let mut pod = Pod::new(&hub)?;
    let mut client = pod.start().await?;
    hub.wait_for_report(WAIT_TIMEOUT, "the first report", |report| report.acknowledged).await?;
    hub.say(|say| say.config("shop").revision = 40);
    let knows = async || hub.polls().pop().filter(|poll| poll.request.configs[0].revision == 40);
    eventually(WAIT_TIMEOUT, "the poll says the revision", knows).await?;
    let polls = hub.polls().len();
    hub.wait_for_polls(polls + 2, WAIT_TIMEOUT).await?;
    ensure!(hub.reports().len() == 1, "nothing has changed that the pod runs");
    // No replica that knows less takes it back.
    hub.say(|say| {
        let _ = say.config("shop").set("0.9.0", &[("lives", b"1")]);
        say.config("shop").revision = 39;
    });
    let status = pod.status_when(&mut client, WAIT_TIMEOUT, "the older revision is noticed", |status| {
        status.contact.as_ref().is_some_and(|contact| contact.message.contains("older than 40"))
    });
    assert_eq!(nudge_tests::kubelet::pod::served(&status.await?), "shop=1.0.0");
    Ok(())
}

#[tokio::test]
async fn changes_in_quick_succession_are_reported_together() -> Result<()> {
    let hub = FakeHub::start()?;
    hub.say(|say| say.settings.report_seconds = 2);
    let mut pod = Pod::new(&hub)?;
    let mut client = pod.start().await?;
    hub.wait_for_report(WAIT_TIMEOUT, "the first report", |report| report.acknowledged).await?;
    for round in 1..=20 {
        hub.activate("shop", &round.to_string(), &[("lives", b"1")])?;
        pod.wait_until_served(&mut client, &format!("shop={round}")).await?;
    }
    let last = |version: &str| version == "20";
    hub.wait_for_report(WAIT_TIMEOUT, "the last version is reported", |report| {
        report.configs[0].version.as_ref().is_some_and(|version| last(version.as_str()))
    })
    .await?;
    let reports = hub.reports();
    ensure!(reports.len() > 1, "{} reports", reports.len());
    for pair in reports.windows(2) {
        // Two seconds at the sender; the first may have been late on its way.
        let apart = pair[1].at - pair[0].at;
        ensure!(apart >= Duration::from_secs(1), "two reports only {apart:?} apart");
    }
    Ok(())
}

#[tokio::test]
async fn a_report_that_is_not_taken_is_sent_again_and_holds_nothing_up() -> Result<()> {
    let hub = FakeHub::start()?;
    hub.say(|say| say.refuse_reports = Some(500));
    let mut pod = Pod::new(&hub)?;
    let mut client = pod.start().await?;
    pod.logs("report to the hub failed").await?;
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    pod.wait_until_served(&mut client, "shop=1.0.1").await?;
    assert_eq!(hub.reports().len(), 0);
    hub.say(|say| say.refuse_reports = None);
    hub.wait_for_report(WAIT_TIMEOUT, "it is reported in the end", |report| report.acknowledged).await?;
    Ok(())
}

#[tokio::test]
async fn a_container_without_an_id_is_waited_for_and_an_ended_one_is_not() -> Result<()> {
    let hub = FakeHub::start()?;
    let waiting = container("app", "", false)?;
    hub.say(|say| say.containers = vec![waiting]);
    let mut pod = Pod::new(&hub)?.with(&USR1);
    pod.start().await?;
    hub.wait_for_report(WAIT_TIMEOUT, "it starts with what is served", |report| report.acknowledged).await?;
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    let report = hub.wait_for_report(WAIT_TIMEOUT, "it is waited for", |report| {
        report.containers.first().is_some_and(|app| app.message.contains("the hub has not reported yet"))
    });
    let report = report.await?;
    assert_eq!(report.request.containers[0].outcome, Outcome::Pending);
    ensure!(!report.request.acknowledged);

    // An ID that no process of this machine has.
    let started = container("app", &"a".repeat(64), false)?;
    hub.say(|say| say.containers = vec![started]);
    hub.wait_for_report(WAIT_TIMEOUT, "it is looked for", |report| {
        report.containers.first().is_some_and(|app| !app.message.contains("the hub has not reported yet"))
    })
    .await?;
    let ended = container("app", &"a".repeat(64), true)?;
    hub.say(|say| say.containers = vec![ended]);
    hub.wait_for_report(WAIT_TIMEOUT, "it does not count any more", |report| {
        report.acknowledged && report.containers.is_empty()
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_container_that_must_fetch_acknowledges_by_fetching() -> Result<()> {
    let hub = FakeHub::start()?;
    let mut pod = Pod::new(&hub)?.with(&USR1).with(&["--ack", "fetched"]);
    pod.start_app(APP, &CATCHES).await?;
    let mut client = pod.start().await?;
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    let delivered = hub.wait_for_report(WAIT_TIMEOUT, "the signal is sent", |report| {
        report.containers[0].outcome == Outcome::Delivered
    });
    ensure!(!delivered.await?.request.acknowledged);
    let request = client.request(Method::GET, "/config").header("nudge-container", "app").body(Full::default())?;
    client.send(request).await?;
    hub.wait_for_report(WAIT_TIMEOUT, "it has fetched", |report| report.acknowledged).await?;
    Ok(())
}

#[tokio::test]
async fn containers_are_notified_by_webhook_too() -> Result<()> {
    let hub = FakeHub::start()?;
    let hook = nudge_tests::HookServer::willing().await?;
    let to = format!("app={}", hook.url());
    let mut pod = Pod::new(&hub)?.with(&["--notify", "app=webhook", "--webhooks", &to]);
    pod.start().await?;
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    hook.notified_of("1.0.1", WAIT_TIMEOUT).await?;
    assert_eq!(hook.deliveries().len(), 1, "no notification of the version that it starts with");
    let report = hub.wait_for_report(WAIT_TIMEOUT, "it was notified", |report| {
        report.acknowledged && report.containers[0].outcome == Outcome::Delivered
    });
    assert_eq!(report.await?.request.containers.len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_failing_config_is_reported_before_anything_is_served() -> Result<()> {
    let hub = FakeHub::start()?;
    hub.say(|say| say.config("shop").fail(nudge_protocol::hub::HubReason::NotFound, "there is no config shop"));
    let mut pod = Pod::new(&hub)?;
    pod.spawn()?;
    let report = hub.wait_for_report(WAIT_TIMEOUT, "the problem is reported", |report| {
        report.configs.first().is_some_and(|config| config.problem.is_some())
    });
    let report = report.await.map_err(|error| pod.explain(&error))?;
    ensure!(!report.request.acknowledged && report.request.configs[0].version.is_none());
    hub.activate("shop", "1", &[("lives", b"3")])?;
    let mut client = pod.client().await?;
    pod.wait_until_served(&mut client, "shop=1").await?;
    let taken = async || hub.reports().pop().filter(|report| report.request.acknowledged);
    let report = eventually(WAIT_TIMEOUT, "what is served is reported", taken).await?;
    report.request.configs[0].version.as_ref().context("a version").map(drop)
}
