//! Containers that read some of the keys are notified of those alone.

use anyhow::{Result, ensure};
use nudge_protocol::hub::ReportedContainer;
use nudge_protocol::status::Outcome;
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::{FakeHub, HookServer, Pod};

use crate::hub_source::{APP, CATCHES, USR1};

const KEYS: [&str; 2] = ["--keys", "app=db.*,app=tls.crt"];

/// Activates a version, and waits until the report about it has this outcome. Returns the container of the report.
async fn activate(
    hub: &FakeHub,
    version: &str,
    values: &[(&str, &[u8])],
    outcome: Outcome,
) -> Result<ReportedContainer> {
    hub.activate("shop", version, values)?;
    let what = format!("{} with {version}", outcome.as_str());
    let report = hub.wait_for_report(WAIT_TIMEOUT, &what, |report| {
        let served = report.configs[0].version.as_ref();
        served.is_some_and(|served| served.as_str() == version) && report.containers[0].outcome == outcome
    });
    Ok(report.await?.request.containers[0].clone())
}

#[tokio::test]
async fn a_container_gets_a_signal_only_if_a_key_that_it_reads_has_changed() -> Result<()> {
    let hub = FakeHub::start()?;
    hub.activate("shop", "1", &[("db.host", b"a"), ("log", b"info"), ("tls.crt", b"x"), ("tls.key", b"x")])?;
    let mut pod = Pod::new(&hub)?.with(&USR1).with(&KEYS);
    pod.start_app(APP, &CATCHES).await?;
    let mut client = pod.start().await?;
    hub.wait_for_report(WAIT_TIMEOUT, "the first report", |report| report.acknowledged).await?;

    let other: [(&str, &[u8]); 4] = [("db.host", b"a"), ("log", b"debug"), ("tls.crt", b"x"), ("tls.key", b"y")];
    let app = activate(&hub, "2", &other, Outcome::Unchanged).await?;
    ensure!(app.acknowledged && app.message.is_empty(), "{app:?}");
    assert_eq!(client.get("/config/log").await?.body, &b"debug"[..], "it is served all the same");
    let added: [(&str, &[u8]); 4] = [("db.host", b"a"), ("db.user", b"u"), ("log", b"debug"), ("tls.crt", b"x")];
    activate(&hub, "3", &added, Outcome::Delivered).await?;
    pod.app_says(1, "SIGUSR1").await?;
    activate(&hub, "4", &added[1..], Outcome::Delivered).await?;
    pod.app_says(2, "SIGUSR1").await?;
    activate(&hub, "5", &[&added[1..3], &[("tls.crt", b"z")]].concat(), Outcome::Delivered).await?;
    pod.app_says(3, "SIGUSR1").await?;
    activate(&hub, "6", &[("db.user", b"u"), ("tls.crt", b"z")], Outcome::Unchanged).await?;
    assert_eq!(pod.app_output().matches("SIGUSR1").count(), 3);
    Ok(())
}

#[tokio::test]
async fn what_a_container_has_missed_is_notified_with_a_change_of_other_keys() -> Result<()> {
    let hub = FakeHub::start()?;
    hub.activate("shop", "1", &[("db.host", b"a"), ("log", b"info")])?;
    let mut pod = Pod::new(&hub)?.with(&["--notify", "app=SIGUSR2"]).with(&KEYS);
    // It has no handler for this signal.
    pod.start_app(APP, &CATCHES).await?;
    pod.start().await?;
    hub.wait_for_report(WAIT_TIMEOUT, "the first report", |report| report.acknowledged).await?;
    activate(&hub, "2", &[("db.host", b"b"), ("log", b"info")], Outcome::NoHandler).await?;
    let app = activate(&hub, "3", &[("db.host", b"b"), ("log", b"debug")], Outcome::NoHandler).await?;
    ensure!(!app.acknowledged, "{app:?}");
    Ok(())
}

#[tokio::test]
async fn a_webhook_is_called_only_if_a_key_that_its_container_reads_has_changed() -> Result<()> {
    let (hub, server) = (FakeHub::start()?, HookServer::willing().await?);
    hub.activate("shop", "1", &[("db.host", b"a"), ("log", b"info")])?;
    let webhook = format!("app={}", server.url());
    let mut pod = Pod::new(&hub)?.with(&["--notify", "app=webhook", "--webhooks", &webhook]).with(&KEYS);
    let mut client = pod.start().await?;
    hub.wait_for_report(WAIT_TIMEOUT, "the first report", |report| report.acknowledged).await?;
    activate(&hub, "2", &[("db.host", b"a"), ("log", b"debug")], Outcome::Unchanged).await?;
    let hooks = client.status().await?.hooks;
    assert_eq!(hooks[0].notified.outcome, Outcome::Unchanged);
    activate(&hub, "3", &[("db.host", b"b"), ("log", b"debug")], Outcome::Delivered).await?;
    let deliveries = server.wait_for(1, WAIT_TIMEOUT).await?;
    assert_eq!((deliveries.len(), deliveries[0].version()?.as_str()), (1, "3"));
    let changed = deliveries[0].event()?.data.changed;
    assert_eq!(changed, ["db.host", "log"], "all that changed since the last event");
    Ok(())
}
