//! The time of a question: the readers of the candidate, and its fate.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use hyper::StatusCode;
use nudge_protocol::ContainerName;
use nudge_protocol::hub::PodContainer;
use nudge_protocol::status::ProblemReason;
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::fakes::hook_server::Answer;
use nudge_tests::kubelet::pod::served;
use nudge_tests::{Client, FakeHub, HookServer, Pod, eventually};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::hub_source::checks::{reason, start_checked_pod};

const CANDIDATE: &str = "/config?candidate=1.0.1";

fn accept_answer() -> Answer {
    Answer::Status(StatusCode::OK)
}

fn refuse_answer() -> Answer {
    Answer::Status(StatusCode::UNPROCESSABLE_ENTITY)
}

#[tokio::test]
async fn the_candidate_is_readable_with_the_token_while_it_is_asked_about() -> Result<()> {
    let (hub, check) = (FakeHub::start()?, HookServer::start(Answer::Hang).await?);
    let (pod, mut client) = start_checked_pod(&hub, &[("app", &check)]).await?;
    let status =
        async |client: &mut Client, path: &str| Ok::<_, anyhow::Error>(client.get(path).await?.status.as_u16());
    assert_eq!(status(&mut client, CANDIDATE).await?, 404, "nobody is asked yet");
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    let asked = check.notified_of("1.0.1", WAIT_TIMEOUT).await?;
    let reply = client.get(CANDIDATE).await?;
    assert_eq!((reply.status.as_u16(), reply.headers["cache-control"].to_str()?), (200, "no-store"));
    assert_eq!(reply.headers["etag"].to_str()?, asked.event()?.data.etag);
    let json: serde_json::Value = serde_json::from_slice(&reply.body)?;
    assert_eq!((&json["lives"], &json["nudge.configs"]), (&"5".into(), &"shop=1.0.1".into()));
    let lines = client.get("/config?format=env&candidate=1.0.1").await?;
    ensure!(String::from_utf8_lossy(&lines.body).contains("lives='5'"), "{lines:?}");
    for (path, expected) in [
        ("/config?candidate=1.0.0", 404),
        ("/config?candidate=1.0.1&wait=1s", 400),
        ("/config/lives?candidate=1.0.1", 400),
    ] {
        assert_eq!(status(&mut client, path).await?, expected, "{path}");
    }
    assert_eq!(client.get("/config/lives").await?.body, "3", "what is served is what was");
    let mut stranger = Client::without_token(client.address(), &pod.path("share/ca.crt"))?;
    assert_eq!(status(&mut stranger, CANDIDATE).await?, 401);
    // The hub returns to what is served: nobody is asked about that, and the question is over.
    hub.activate("shop", "1.0.0", &[("lives", b"3")])?;
    let gone = async || (client.get(CANDIDATE).await.ok()?.status.as_u16() == 404).then_some(());
    eventually(WAIT_TIMEOUT, "the candidate is gone", gone).await?;
    assert_eq!(check.deliveries().len(), 1);
    for (answer, version) in [(accept_answer(), "1.0.1"), (refuse_answer(), "1.0.2")] {
        check.answer(answer);
        hub.activate("shop", version, &[("lives", version.as_bytes())])?;
        check.notified_of(version, WAIT_TIMEOUT).await?;
        let done = pod.status_when(&mut client, WAIT_TIMEOUT, "it has answered", |status| {
            status.configs[0].version.as_str() == version || reason(status).is_some()
        });
        done.await?;
        assert_eq!(status(&mut client, &format!("/config?candidate={version}")).await?, 404);
    }
    Ok(())
}

#[tokio::test]
async fn only_the_newest_version_is_asked_about() -> Result<()> {
    let (hub, check) = (FakeHub::start()?, HookServer::start(Answer::Hang).await?);
    let (pod, mut client) = start_checked_pod(&hub, &[("app", &check)]).await?;
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    check.notified_of("1.0.1", WAIT_TIMEOUT).await?;
    check.answer(accept_answer());
    hub.activate("shop", "1.0.2", &[("lives", b"7")])?;
    pod.wait_until_served(&mut client, "shop=1.0.2").await?;
    let asked: Vec<String> = check.deliveries().iter().map(nudge_tests::Delivery::version).collect::<Result<_>>()?;
    assert_eq!(asked, ["1.0.1", "1.0.2"]);
    Ok(())
}

#[tokio::test]
async fn what_was_said_of_one_version_is_not_said_of_the_next() -> Result<()> {
    let (hub, check) = (FakeHub::start()?, HookServer::start(refuse_answer()).await?);
    let (pod, mut client) = start_checked_pod(&hub, &[("app", &check)]).await?;
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    pod.status_when(&mut client, WAIT_TIMEOUT, "it is refused", |status| reason(status).is_some()).await?;
    check.answer(Answer::Hang);
    hub.activate("shop", "1.0.2", &[("lives", b"7")])?;
    check.notified_of("1.0.2", WAIT_TIMEOUT).await?;
    let status = client.status().await?;
    assert_eq!((reason(&status), served(&status).as_str()), (None, "shop=1.0.0"), "nobody has refused this one");
    hub.wait_for_report(WAIT_TIMEOUT, "neither does the report", |report| report.configs[0].problem.is_none()).await?;
    Ok(())
}

#[tokio::test]
async fn an_agent_that_is_killed_while_it_asks_asks_again() -> Result<()> {
    let (hub, check) = (FakeHub::start()?, HookServer::start(Answer::Hang).await?);
    let mut pod = Pod::new(&hub)?.with(&["--check", &format!("app={}", check.url())]);
    let files = pod.path("files");
    pod.arguments.extend(["--mount-path".into(), files.clone().into()]);
    pod.start().await?;
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    check.notified_of("1.0.1", WAIT_TIMEOUT).await?;
    ensure!(files.join("..next").exists());
    pod.kill().await?;
    hub.say(|say| say.always = Some(nudge_tests::fakes::fake_hub::Answer::Status(503, None)));
    let mut client = pod.start().await?;
    pod.wait_until_served(&mut client, "shop=1.0.0").await?;
    ensure!(!files.join("..next").exists(), "the candidate was not kept");
    check.answer(accept_answer());
    hub.say(|say| say.always = None);
    pod.wait_until_served(&mut client, "shop=1.0.1").await?;
    assert_eq!(check.deliveries().len(), 2);
    Ok(())
}

#[tokio::test]
async fn what_the_pod_has_run_is_not_asked_about_also_after_a_restart() -> Result<()> {
    let (hub, check) = (FakeHub::start()?, HookServer::willing().await?);
    let (mut pod, mut client) = start_checked_pod(&hub, &[("app", &check)]).await?;
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    pod.wait_until_served(&mut client, "shop=1.0.1").await?;
    let stored = async || fs::read_to_string(pod.path("state/ran")).ok().filter(|ran| ran.matches(',').count() == 1);
    eventually(WAIT_TIMEOUT, "both are recorded", stored).await?;
    pod.kill().await?;
    let mut client = pod.start().await?;
    pod.wait_until_served(&mut client, "shop=1.0.1").await?;
    check.answer(refuse_answer());
    hub.activate("shop", "1.0.0", &[("lives", b"3")])?;
    pod.wait_until_served(&mut client, "shop=1.0.0").await?;
    assert_eq!(check.deliveries().len(), 1);
    Ok(())
}

#[tokio::test]
async fn the_files_of_a_candidate_stand_beside_the_others_for_the_time_of_the_question() -> Result<()> {
    let (hub, check) = (FakeHub::start()?, HookServer::start(Answer::Hang).await?);
    let mut pod = Pod::new(&hub)?.with(&["--check", &format!("app={}", check.url())]);
    let files = pod.path("files");
    pod.arguments.extend(["--mount-path".into(), files.clone().into()]);
    let mut client = pod.start().await?;
    let read = |path: &str| fs::read_to_string(files.join(path)).ok();
    let gone = async || (!files.join("..next").exists()).then_some(());
    eventually(WAIT_TIMEOUT, "the files are written", async || read("lives")).await?;
    for (answer, version, after) in [(accept_answer(), "1.0.1", "1.0.1"), (refuse_answer(), "1.0.2", "3")] {
        check.answer(Answer::Hang);
        let before = read("lives");
        hub.activate("shop", version, &[("lives", version.as_bytes())])?;
        check.notified_of(version, WAIT_TIMEOUT).await?;
        assert_eq!((read("..next/lives").as_deref(), read("lives")), (Some(version), before));
        // The same version comes to another question, whose answer is not held.
        check.answer(answer);
        hub.activate("shop", "1.0.0", &[("lives", b"3")])?;
        eventually(WAIT_TIMEOUT, "the candidate's files are gone", gone).await?;
        hub.activate("shop", version, &[("lives", version.as_bytes())])?;
        pod.status_when(&mut client, WAIT_TIMEOUT, "it has answered", |status| {
            status.configs[0].version.as_str() == version || reason(status).is_some()
        })
        .await?;
        eventually(WAIT_TIMEOUT, "the candidate's files are gone", gone).await?;
        let written = async || (read("lives").as_deref() == Some(after)).then_some(());
        eventually(WAIT_TIMEOUT, "the files are written", written).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_container_that_has_ended_is_not_asked_and_one_that_nobody_reaches_is_reported() -> Result<()> {
    let hub = FakeHub::start()?;
    let containers = vec![PodContainer { name: ContainerName::new("app")?, id: String::new(), ended: true }];
    hub.say(|say| (say.containers, say.ack_timeout_seconds) = (containers, Some(1)));
    let mut pod = Pod::new(&hub)?.with(&["--check", "app=http://127.0.0.1:1/config-check"]);
    let mut client = pod.start().await?;
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    pod.wait_until_served(&mut client, "shop=1.0.1").await?;
    hub.say(|say| say.containers.clear());
    hub.activate("shop", "1.0.2", &[("lives", b"7")])?;
    let reported = hub.wait_for_report(WAIT_TIMEOUT, "it is reported", |report| {
        report.configs[0].problem.as_ref().is_some_and(|problem| problem.reason == "CheckFailed")
    });
    let problem = reported.await?.request.configs[0].problem.clone().context("no problem")?;
    ensure!(problem.message.contains("the target can't be reached"), "{}", problem.message);
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    pod.status_when(&mut client, WAIT_TIMEOUT, "all is well", |status| reason(status).is_none()).await?;
    Ok(())
}

#[tokio::test]
async fn a_refusal_counts_although_its_text_never_ends() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let check = format!("app=http://{}/", listener.local_addr()?);
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await?;
        // An answer before the question counts as none.
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            asked.push(stream.read_u8().await?);
        }
        stream.write_all(b"HTTP/1.1 422 No\r\ncontent-length: 100\r\n\r\nhunter").await?;
        stream.read_to_end(&mut Vec::new()).await
    });
    let hub = FakeHub::start()?;
    let mut pod = Pod::new(&hub)?.with(&["--check", &check]);
    let mut client = pod.start().await?;
    hub.activate("shop", "1.0.1", &[("lives", b"hunter2")])?;
    let refused =
        pod.status_when(&mut client, WAIT_TIMEOUT, "it is refused", |status| reason(status).is_some()).await?;
    let problem = refused.configs[0].problem.as_ref().context("no problem")?;
    assert_eq!(problem.reason, ProblemReason::CheckRefused);
    ensure!(problem.message.contains("its text is left out"), "{}", problem.message);
    server.abort();
    Ok(())
}

#[tokio::test]
async fn a_check_outside_of_the_pod_is_refused_at_the_start() -> Result<()> {
    let hub = FakeHub::start()?;
    let mut pod = Pod::new(&hub)?.with(&["--check", "app=http://192.0.2.1:8080/"]);
    pod.spawn()?;
    pod.logs("the check of container app can't be used").await?;
    Ok(())
}
