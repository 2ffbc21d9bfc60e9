//! Containers that must show after their notification that they took a version.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use hyper::{Method, StatusCode};
use nudge_protocol::status::{ContainerStatus, Outcome};
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::fakes::hook_server::Answer;
use nudge_tests::{Client, FakeHub, HookServer, Pod, tools};

use super::{APP, CATCHES, USR1};

/// A program with a main process and a worker, which it replaces on the signal if the file says so.
const MASTER: &str = r#"
    begin() { sleep 100 & worker=$!; }
    trap 'if [ "$(cat "$1")" = good ]; then old=$worker; begin; kill "$old"; fi; echo "$$ SIGUSR1"' USR1
    trap 'kill "$worker"; exit' TERM
    begin
    echo "$$ ready"
    while :; do wait; done"#;

/// A program with a main process that never reaps its children, and does on the signal what the file says: it replaces
/// its worker, or only runs a helper, or ends.
const CARELESS: &str = r#"
import os, signal, sys

def child(run):
    process = os.fork()
    if process == 0:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        run()
        os._exit(0)
    return process

def reload(*_):
    global worker
    what = open(sys.argv[1]).read()
    child(lambda: None)
    if what == "good":
        old, worker = worker, child(signal.pause)
        os.kill(old, signal.SIGKILL)
    print(f"{os.getpid()} SIGUSR1", flush=True)
    if what == "end":
        os.kill(worker, signal.SIGKILL)
        os._exit(1)

worker = child(signal.pause)
signal.signal(signal.SIGUSR1, reload)
signal.signal(signal.SIGTERM, lambda *_: (os.kill(worker, signal.SIGKILL), os._exit(0)))
print(f"{os.getpid()} ready", flush=True)
while True:
    signal.pause()
"#;

fn page(text: &str) -> Answer {
    Answer::Text(StatusCode::OK, text.to_owned())
}

/// Returns a pod that serves 1.0.0, whose container gets a signal and must show this.
async fn start_pod(hub: &FakeHub, verify: &str, app: &str, arguments: &[&str]) -> Result<(Pod, Client)> {
    let mut pod = Pod::new(hub)?.with(&USR1).with(&["--verify", &format!("app={verify}")]);
    pod.start_app(app, arguments).await?;
    let mut client = pod.start().await?;
    pod.wait_until_served(&mut client, "shop=1.0.0").await?;
    Ok((pod, client))
}

/// Waits until the version is served and its notification has this outcome.
async fn wait_for_outcome(pod: &Pod, client: &mut Client, version: &str, outcome: Outcome) -> Result<ContainerStatus> {
    let what = format!("{version} is {outcome:?}");
    let status = pod.status_when(client, 2 * WAIT_TIMEOUT, &what, |status| {
        let notified = &status.containers[0].notified;
        status.configs[0].version.as_str() == version
            && notified.outcome == outcome
            && notified.etag.as_deref() == Some(&status.etag)
    });
    let mut status = status.await?;
    Ok(status.containers.remove(0))
}

/// Waits until the hub has a report with this outcome.
async fn wait_for_report(hub: &FakeHub, outcome: Outcome) -> Result<String> {
    let what = format!("{outcome:?} is reported");
    let report = hub.wait_for_report(WAIT_TIMEOUT, &what, |report| {
        report.containers.iter().any(|container| container.outcome == outcome && !container.acknowledged)
    });
    let report = report.await?.request;
    ensure!(!report.acknowledged && !report.configs[0].acknowledged, "{report:?}");
    Ok(report.containers[0].message.clone())
}

#[tokio::test]
async fn new_workers_show_a_version_and_the_way_back_shows_nothing() -> Result<()> {
    let hub = FakeHub::start()?;
    let folder = tempfile::tempdir()?;
    let state = folder.path().join("state");
    let set = |text: &str| fs::write(&state, text).context("can't write the file");
    set("good")?;
    let file = state.to_str().context("no text")?;
    let (mut pod, mut client) = start_pod(&hub, "workers within 2s", "sh", &["-c", MASTER, "app", file]).await?;
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    let taken = wait_for_outcome(&pod, &mut client, "1.0.1", Outcome::Delivered).await?;
    assert_eq!((taken.notified.processes, taken.acknowledged), (vec![pod.app_pid()?], true));

    set("bad")?;
    hub.activate("shop", "1.0.2", &[("lives", b"x")])?;
    let silent = wait_for_outcome(&pod, &mut client, "1.0.2", Outcome::NotVerified).await?;
    let message =
        "it was notified, and has not shown within 2 s that it took the version: its main process has no new child";
    assert_eq!((silent.notified.message.as_str(), silent.acknowledged), (message, false));
    assert_eq!(wait_for_report(&hub, Outcome::NotVerified).await?, message);

    // The program is as bad at the way back, which need not be shown.
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    let back = wait_for_outcome(&pod, &mut client, "1.0.1", Outcome::Delivered).await?;
    ensure!(back.acknowledged, "{back:?}");
    pod.app_says(3, "SIGUSR1").await?;

    // What was not taken must be shown again.
    set("good")?;
    hub.activate("shop", "1.0.2", &[("lives", b"x")])?;
    wait_for_outcome(&pod, &mut client, "1.0.2", Outcome::Delivered).await?;
    pod.logs("container has taken the version").await
}

#[tokio::test]
async fn zombies_and_helpers_are_no_workers_and_a_main_process_that_ends_shows_nothing() -> Result<()> {
    let Some(python) = tools::find("python3")? else { return Ok(()) };
    let hub = FakeHub::start()?;
    let folder = tempfile::tempdir()?;
    let state = folder.path().join("state");
    let set = |text: &str| fs::write(&state, text).context("can't write the file");
    let arguments = ["-c", CARELESS, state.to_str().context("no text")?];
    let python = python.to_str().context("no text")?;
    let (pod, mut client) = start_pod(&hub, "workers within 2s", python, &arguments).await?;
    set("good")?;
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    wait_for_outcome(&pod, &mut client, "1.0.1", Outcome::Delivered).await?;
    set("helper")?;
    hub.activate("shop", "1.0.2", &[("lives", b"6")])?;
    let helper = wait_for_outcome(&pod, &mut client, "1.0.2", Outcome::NotVerified).await?;
    ensure!(helper.notified.message.contains("has no new child"), "{helper:?}");
    set("end")?;
    hub.activate("shop", "1.0.3", &[("lives", b"7")])?;
    let ended = wait_for_outcome(&pod, &mut client, "1.0.3", Outcome::NotVerified).await?;
    ensure!(ended.notified.message.contains("it has no process with a handler for SIGUSR1"), "{ended:?}");
    Ok(())
}

#[tokio::test]
async fn a_metric_that_grows_shows_a_version_and_one_that_falls_to_0_a_failure() -> Result<()> {
    let (hub, metrics) = (FakeHub::start()?, HookServer::start(page("# HELP\ntime 1\nok 1\n")).await?);
    let verify = format!("{} newer time ok ok", metrics.url());
    let (mut pod, mut client) = start_pod(&hub, &verify, APP, &CATCHES).await?;
    ensure!(metrics.deliveries().is_empty(), "nothing is asked at the start");
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    pod.app_says(1, "SIGUSR1").await?;
    let asked = metrics.deliveries().first().context("it was not read before the notification")?.clone();
    assert_eq!((&asked.method, asked.header("webhook-signature")), (&Method::GET, ""));
    wait_for_outcome(&pod, &mut client, "1.0.1", Outcome::Pending).await?;
    metrics.answer(page("time 2\nok 1\n"));
    let taken = wait_for_outcome(&pod, &mut client, "1.0.1", Outcome::Delivered).await?;
    ensure!(taken.acknowledged, "{taken:?}");

    hub.activate("shop", "1.0.2", &[("lives", b"x")])?;
    pod.app_says(2, "SIGUSR1").await?;
    metrics.answer(page("time 2\nok 0\n"));
    wait_for_outcome(&pod, &mut client, "1.0.2", Outcome::Failed).await?;
    let message = wait_for_report(&hub, Outcome::Failed).await?;
    assert_eq!(message, "it was notified, and could not take the version: its metric ok is 0; see its log");
    // It may take it later.
    metrics.answer(page("time 3\nok 1\n"));
    wait_for_outcome(&pod, &mut client, "1.0.2", Outcome::Delivered).await?;
    Ok(())
}

#[tokio::test]
async fn the_value_of_a_key_shows_a_version_that_has_another_value() -> Result<()> {
    let (hub, mark) = (FakeHub::start()?, HookServer::start(page(r#"{"data": ["3"]}"#)).await?);
    let verify = format!("{}#/data/0 is lives within 2s", mark.url());
    let (mut pod, mut client) = start_pod(&hub, &verify, APP, &CATCHES).await?;
    hub.activate("shop", "1.0.1", &[("lives", b"hunter2\n")])?;
    pod.app_says(1, "SIGUSR1").await?;
    mark.answer(page(r#"{"data": ["hunter2"]}"#));
    wait_for_outcome(&pod, &mut client, "1.0.1", Outcome::Delivered).await?;

    hub.activate("shop", "1.0.2", &[("lives", b"hunter2\n"), ("other", b"1")])?;
    let other = wait_for_outcome(&pod, &mut client, "1.0.2", Outcome::Delivered).await?;
    let message = &other.notified.message;
    ensure!(message.contains("alone counts") && message.contains("does not change key lives"), "{message}");
    ensure!(other.acknowledged, "{other:?}");

    // A page that shows the file as it is shows nothing.
    mark.answer(page(r#"{"data": ["static"]}"#));
    hub.activate("shop", "1.0.3", &[("lives", b"static")])?;
    let early = wait_for_outcome(&pod, &mut client, "1.0.3", Outcome::NotVerified).await?;
    let message = &early.notified.message;
    ensure!(message.contains("the answer already was the value of key lives before the notification"), "{message}");

    mark.answer(Answer::Status(StatusCode::NOT_FOUND));
    hub.activate("shop", "1.0.4", &[("lives", b"hunter3")])?;
    let away = wait_for_outcome(&pod, &mut client, "1.0.4", Outcome::NotVerified).await?;
    ensure!(away.notified.message.contains("the target answered 404"), "{}", away.notified.message);
    let log = pod.agent.as_ref().map(nudge_tests::Agent::log).unwrap_or_default();
    let reports: String = hub.reports().iter().map(|report| report.text.as_str()).collect();
    ensure!(!log.contains("hunter") && !reports.contains("hunter"), "a value is shown: {log}{reports}");
    Ok(())
}

#[tokio::test]
async fn a_webhook_that_is_answered_is_not_enough() -> Result<()> {
    let (hub, hook) = (FakeHub::start()?, HookServer::willing().await?);
    let metrics = HookServer::start(page("time 1\n")).await?;
    let mut pod = Pod::new(&hub)?.with(&["--notify", "app=webhook", "--webhooks", &format!("app={}", hook.url())]);
    pod = pod.with(&["--verify", &format!("app={} newer time", metrics.url())]);
    let mut client = pod.start().await?;
    pod.wait_until_served(&mut client, "shop=1.0.0").await?;
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    hook.notified_of("1.0.1", WAIT_TIMEOUT).await?;
    ensure!(!metrics.deliveries().is_empty(), "it was not read before the notification");
    let waiting = wait_for_outcome(&pod, &mut client, "1.0.1", Outcome::Pending).await?;
    ensure!(!waiting.acknowledged, "{waiting:?}");
    metrics.answer(page("time 2\n"));
    let taken = wait_for_outcome(&pod, &mut client, "1.0.1", Outcome::Delivered).await?;
    ensure!(taken.acknowledged, "{taken:?}");
    assert_eq!(hook.deliveries().len(), 1);
    Ok(())
}

#[tokio::test]
async fn an_agent_that_is_killed_meanwhile_notifies_again_and_the_answer_may_be_there() -> Result<()> {
    let (hub, mark) = (FakeHub::start()?, HookServer::start(page("3")).await?);
    let (mut pod, mut client) = start_pod(&hub, &format!("{} is lives", mark.url()), APP, &CATCHES).await?;
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    pod.app_says(1, "SIGUSR1").await?;
    wait_for_outcome(&pod, &mut client, "1.0.1", Outcome::Pending).await?;
    pod.kill().await?;
    mark.answer(page("5"));
    let mut client = pod.start().await?;
    let taken = wait_for_outcome(&pod, &mut client, "1.0.1", Outcome::Delivered).await?;
    ensure!(taken.acknowledged && taken.notified.message.contains("which alone counts"), "{taken:?}");
    pod.app_says(2, "SIGUSR1").await
}

#[tokio::test]
async fn an_agent_that_is_restarted_alone_takes_no_value_from_before_the_change() -> Result<()> {
    let (hub, mark) = (FakeHub::start()?, HookServer::start(page("3")).await?);
    let (mut pod, mut client) = start_pod(&hub, &format!("{} is lives within 2s", mark.url()), APP, &CATCHES).await?;
    hub.activate("shop", "1.0.1", &[("lives", b"4")])?;
    pod.app_says(1, "SIGUSR1").await?;
    mark.answer(page("4"));
    wait_for_outcome(&pod, &mut client, "1.0.1", Outcome::Delivered).await?;
    pod.kill().await?;
    let mut client = pod.start().await?;
    pod.wait_until_served(&mut client, "shop=1.0.1").await?;
    mark.answer(page("5"));
    hub.activate("shop", "1.0.2", &[("lives", b"5")])?;
    let early = wait_for_outcome(&pod, &mut client, "1.0.2", Outcome::NotVerified).await?;
    ensure!(early.notified.message.contains("before the notification") && !early.acknowledged, "{early:?}");
    Ok(())
}

#[tokio::test]
async fn a_late_sign_of_a_version_does_not_count_for_the_next_one() -> Result<()> {
    let (hub, metrics) = (FakeHub::start()?, HookServer::start(page("time 1\n")).await?);
    let (mut pod, mut client) = start_pod(&hub, &format!("{} newer time", metrics.url()), APP, &CATCHES).await?;
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    pod.app_says(1, "SIGUSR1").await?;
    hub.activate("shop", "1.0.2", &[("lives", b"x")])?;
    pod.app_says(2, "SIGUSR1").await?;
    // The program is done with 1.0.1 only now.
    metrics.answer(page("time 2\n"));
    pod.app_says(3, "SIGUSR1").await?;
    let waiting = wait_for_outcome(&pod, &mut client, "1.0.2", Outcome::Pending).await?;
    ensure!(!waiting.acknowledged, "{waiting:?}");
    metrics.answer(page("time 3\n"));
    let taken = wait_for_outcome(&pod, &mut client, "1.0.2", Outcome::Delivered).await?;
    ensure!(taken.acknowledged, "{taken:?}");

    // Nothing is open any more.
    hub.activate("shop", "1.0.3", &[("lives", b"7")])?;
    pod.app_says(4, "SIGUSR1").await?;
    metrics.answer(page("time 4\n"));
    let taken = wait_for_outcome(&pod, &mut client, "1.0.3", Outcome::Delivered).await?;
    ensure!(taken.acknowledged, "{taken:?}");
    assert_eq!(pod.agent.as_ref().map(|agent| agent.log().matches("container is notified again").count()), Some(1));
    Ok(())
}

#[tokio::test]
async fn a_page_that_is_away_at_first_is_read_before_the_next_attempt() -> Result<()> {
    let hub = FakeHub::start()?;
    let hook = HookServer::start(Answer::Status(StatusCode::SERVICE_UNAVAILABLE)).await?;
    let metrics = HookServer::start(Answer::Redirect("/elsewhere".to_owned())).await?;
    let mut pod = Pod::new(&hub)?.with(&["--notify", "app=webhook", "--webhooks", &format!("app={}", hook.url())]);
    pod = pod.with(&["--verify", &format!("app={} newer time", metrics.url())]);
    let mut client = pod.start().await?;
    pod.wait_until_served(&mut client, "shop=1.0.0").await?;
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    hook.notified_of("1.0.1", WAIT_TIMEOUT).await?;
    metrics.answer(page("time 1\n"));
    hook.wait_for(2, WAIT_TIMEOUT).await?;
    hook.answer(Answer::Status(StatusCode::NO_CONTENT));
    wait_for_outcome(&pod, &mut client, "1.0.1", Outcome::Pending).await?;
    hook.wait_for(3, WAIT_TIMEOUT).await?;
    metrics.answer(page("time 2\n"));
    let taken = wait_for_outcome(&pod, &mut client, "1.0.1", Outcome::Delivered).await?;
    ensure!(taken.acknowledged, "{taken:?}");
    ensure!(metrics.deliveries().iter().all(|request| request.target == "/changed?by=nudge"), "redirects are followed");
    Ok(())
}

#[tokio::test]
async fn a_container_that_is_not_notified_can_show_nothing() -> Result<()> {
    let hub = FakeHub::start()?;
    let mut pod = Pod::new(&hub)?.with(&["--notify", "app=none", "--verify", "app=workers"]);
    pod.spawn()?;
    let agent = pod.agent.as_mut().context("no agent")?;
    let status = agent.process().wait_for_exit(WAIT_TIMEOUT).await?;
    ensure!(!status.success(), "{status}");
    pod.logs("container app must show that it took a version, but is not notified; set app=SIGHUP").await
}
