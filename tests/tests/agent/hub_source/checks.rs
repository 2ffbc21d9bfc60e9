//! The answers of containers that are asked about a version, and their effect on the agent.

use anyhow::{Context as _, Result, ensure};
use hyper::StatusCode;
use nudge_protocol::status::{ProblemReason, Status};
use nudge_protocol::webhooks::CONFIG_CHECK;
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::fakes::hook_server::Answer;
use nudge_tests::kubelet::pod::served;
use nudge_tests::{Agent, Client, FakeHub, HookServer, Pod};

/// Returns a pod that serves 1.0.0 of `shop`, whose containers are asked at these places.
pub(crate) async fn start_checked_pod(hub: &FakeHub, checks: &[(&str, &HookServer)]) -> Result<(Pod, Client)> {
    let mut pod = Pod::new(hub)?;
    for (container, check) in checks {
        pod = pod.with(&["--check", &format!("{container}={}", check.url())]);
    }
    let mut client = pod.start().await?;
    pod.wait_until_served(&mut client, "shop=1.0.0").await?;
    Ok((pod, client))
}

/// Returns the problem of the first config.
pub(crate) fn reason(status: &Status) -> Option<ProblemReason> {
    status.configs.first()?.problem.as_ref().map(|problem| problem.reason)
}

/// Waits until a container has refused what is assigned. Returns the message.
async fn wait_for_refusal(pod: &Pod, client: &mut Client) -> Result<String> {
    let refused = |status: &Status| reason(status) == Some(ProblemReason::CheckRefused);
    let status = pod.status_when(client, WAIT_TIMEOUT, "it is refused", refused).await?;
    assert_eq!(served(&status), "shop=1.0.0");
    Ok(status.configs[0].problem.as_ref().context("no problem")?.message.clone())
}

fn refuse_with(text: &str) -> Answer {
    Answer::Text(StatusCode::UNPROCESSABLE_ENTITY, text.to_owned())
}

#[tokio::test]
async fn a_container_that_takes_a_version_gets_it_and_is_asked_once() -> Result<()> {
    let (hub, check) = (FakeHub::start()?, HookServer::willing().await?);
    let (pod, mut client) = start_checked_pod(&hub, &[("app", &check)]).await?;
    ensure!(check.deliveries().is_empty(), "it starts with the first version");
    hub.activate("shop", "1.0.1", &[("lives", b"hunter2"), ("new", b"1")])?;
    pod.wait_until_served(&mut client, "shop=1.0.1").await?;
    let [asked] = &check.deliveries()[..] else { anyhow::bail!("{} questions", check.deliveries().len()) };
    let event = asked.event()?;
    assert_eq!((event.kind.as_str(), event.data.changed), (CONFIG_CHECK, vec!["lives".to_owned(), "new".to_owned()]));
    assert_eq!(event.data.candidate.as_ref().map(AsRef::as_ref), Some("1.0.1"));
    assert_eq!((asked.version()?.as_str(), event.data.truncated), ("1.0.1", false));
    assert_eq!(event.data.etag, client.status().await?.etag, "of the dictionary that it was asked about");
    ensure!(!asked.body.contains("hunter2"), "{}", asked.body);
    ensure!(asked.header("webhook-signature").starts_with("v1,"), "{:?}", asked.headers);
    Ok(())
}

#[tokio::test]
async fn a_refused_version_is_not_served_and_its_reason_is_reported() -> Result<()> {
    let (hub, check) = (FakeHub::start()?, HookServer::start(refuse_with("lives: at most 4\x1b[2J\n")).await?);
    let (pod, mut client) = start_checked_pod(&hub, &[("app", &check)]).await?;
    hub.activate("shop", "1.0.1", &[("lives", b"17")])?;
    let message = wait_for_refusal(&pod, &mut client).await?;
    assert_eq!(message, "container app refuses it: lives: at most 4 [2J");
    let reported = hub.wait_for_report(WAIT_TIMEOUT, "it is reported", |report| {
        let problem = report.configs[0].problem.as_ref();
        problem.is_some_and(|problem| problem.reason == "CheckRefused" && problem.message == message)
    });
    assert_eq!(reported.await?.request.configs[0].version.as_ref().map(AsRef::as_ref), Some("1.0.0"));
    // The poll claims that the agent holds it, so it is not sent again and again.
    let polls = hub.polls().len();
    ensure!(polls < 10, "{polls} polls");
    // The way back is not asked about.
    hub.activate("shop", "1.0.0", &[("lives", b"3")])?;
    pod.status_when(&mut client, WAIT_TIMEOUT, "all is well", |status| reason(status).is_none()).await?;
    assert_eq!(check.deliveries().len(), 1);
    check.answer(Answer::Status(StatusCode::OK));
    hub.activate("shop", "1.0.1", &[("lives", b"17")])?;
    pod.wait_until_served(&mut client, "shop=1.0.1").await?;
    Ok(())
}

#[tokio::test]
async fn a_reason_that_holds_a_value_reaches_neither_log_nor_report() -> Result<()> {
    let (hub, check) = (FakeHub::start()?, HookServer::start(refuse_with("bad password: hunter2!")).await?);
    let (pod, mut client) = start_checked_pod(&hub, &[("app", &check)]).await?;
    let long = "x".repeat(5000);
    for (version, text) in [("2", "bad password: hunter2!"), ("3", "the old one was 3"), ("4", &long)] {
        check.answer(refuse_with(text));
        hub.activate("shop", version, &[("lives", b"hunter2"), ("version", version.as_bytes())])?;
        check.notified_of(version, WAIT_TIMEOUT).await?;
        hub.wait_for_report(WAIT_TIMEOUT, "it is reported", |report| {
            let problem = report.configs[0].problem.as_ref();
            problem.is_some_and(|problem| problem.reason == "CheckRefused")
        })
        .await?;
        let message = wait_for_refusal(&pod, &mut client).await?;
        ensure!(message.contains("its text is left out"), "{message}");
        hub.activate("shop", "1.0.0", &[("lives", b"3")])?;
        pod.status_when(&mut client, WAIT_TIMEOUT, "all is well", |status| reason(status).is_none()).await?;
    }
    let log = pod.agent.as_ref().map(Agent::log).unwrap_or_default();
    let reports: String = hub.reports().iter().map(|report| report.text.as_str()).collect();
    for said in [log, reports] {
        ensure!(!said.contains("hunter2") && !said.contains("the old one was"), "{said}");
    }
    Ok(())
}

#[tokio::test]
async fn a_container_that_knows_no_question_takes_every_version_and_that_is_said_once() -> Result<()> {
    for status in [404, 405, 501] {
        let hub = FakeHub::start()?;
        let check = HookServer::start(Answer::Status(StatusCode::from_u16(status)?)).await?;
        let (pod, mut client) = start_checked_pod(&hub, &[("app", &check)]).await?;
        for version in ["1.0.1", "1.0.2"] {
            hub.activate("shop", version, &[("lives", version.as_bytes())])?;
            pod.wait_until_served(&mut client, &format!("shop={version}")).await?;
        }
        assert_eq!(check.deliveries().len(), 2);
        let log = pod.agent.as_ref().map(Agent::log).unwrap_or_default();
        assert_eq!(log.matches("container has no check").count(), 1, "{log}");
    }
    Ok(())
}

#[tokio::test]
async fn any_other_answer_is_no_answer_and_redirects_are_not_followed() -> Result<()> {
    let elsewhere = HookServer::willing().await?;
    let other = [
        Answer::Status(StatusCode::INTERNAL_SERVER_ERROR),
        Answer::Status(StatusCode::UNAUTHORIZED),
        Answer::Redirect(elsewhere.url().to_owned()),
    ];
    let hub = FakeHub::start()?;
    let check = HookServer::willing().await?;
    let (pod, mut client) = start_checked_pod(&hub, &[("app", &check)]).await?;
    for (number, answer) in other.into_iter().enumerate() {
        let (version, before) = (format!("2.{number}"), check.deliveries().len());
        check.answer(answer);
        hub.activate("shop", &version, &[("lives", version.as_bytes())])?;
        let asked = check.wait_for(before + 2, WAIT_TIMEOUT).await?;
        ensure!(asked[before].id() == asked[before + 1].id(), "it is the same question");
        ensure!(served(&client.status().await?) != format!("shop={version}"));
        check.answer(Answer::Status(StatusCode::NO_CONTENT));
        pod.wait_until_served(&mut client, &format!("shop={version}")).await?;
    }
    assert_eq!(elsewhere.deliveries().len(), 0);
    Ok(())
}

#[tokio::test]
async fn a_container_that_does_not_answer_in_time_is_reported_and_asked_again() -> Result<()> {
    let (hub, check) = (FakeHub::start()?, HookServer::start(Answer::Hang).await?);
    hub.say(|say| say.ack_timeout_seconds = Some(1));
    let (pod, mut client) = start_checked_pod(&hub, &[("app", &check)]).await?;
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    let reported = hub.wait_for_report(WAIT_TIMEOUT, "it is reported", |report| {
        report.configs[0].problem.as_ref().is_some_and(|problem| problem.reason == "CheckFailed")
    });
    let reported = reported.await?.request.configs[0].clone();
    let message = reported.problem.context("no problem")?.message;
    assert_eq!(message, "container app has not answered its check within 1 s; the agent asks again");
    assert_eq!(reported.version.as_ref().map(AsRef::as_ref), Some("1.0.0"));
    // The attempt that hangs is cut.
    check.answer(Answer::Status(StatusCode::OK));
    let status = pod.wait_until_served(&mut client, "shop=1.0.1").await?;
    assert_eq!((reason(&status), check.deliveries().len()), (None, 2));
    Ok(())
}

#[tokio::test]
async fn all_containers_must_take_a_version() -> Result<()> {
    let (hub, app, web) = (FakeHub::start()?, HookServer::willing().await?, HookServer::willing().await?);
    let (pod, mut client) = start_checked_pod(&hub, &[("app", &app), ("web", &web)]).await?;
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    pod.wait_until_served(&mut client, "shop=1.0.1").await?;
    hub.activate("shop", "1.0.0", &[("lives", b"3")])?;
    pod.wait_until_served(&mut client, "shop=1.0.0").await?;
    // One hangs, which the refusal of the other need not wait for.
    app.answer(Answer::Hang);
    web.answer(refuse_with("no"));
    hub.activate("shop", "1.0.2", &[("lives", b"7")])?;
    assert_eq!(wait_for_refusal(&pod, &mut client).await?, "container web refuses it: no");
    assert_eq!((app.deliveries().len(), web.deliveries().len()), (2, 2));
    Ok(())
}
