//! Containers that take a version by a restart: the agent's checks, its stored state, its exit code, and its report
//! after the restart.

use std::fs;

use anyhow::{Context, Result, ensure};
use nudge_protocol::hub::{PodContainer, ReportRequest};
use nudge_protocol::status::{Outcome, ProblemReason, Status};
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::fakes::fake_hub::Answer;
use nudge_tests::kubelet::pod::served;
use nudge_tests::{Client, FakeHub, Pod};

use crate::hub_source::TWO;
use crate::hub_source::checks::reason;

/// The agent's exit code.
const RESTART: Option<i32> = Some(88);

/// The containers of the pod as the hub has them.
fn set_containers(hub: &FakeHub, id: char) -> Result<()> {
    let app = PodContainer { name: "app".parse()?, id: String::from(id).repeat(64), ended: false };
    hub.say(|say| say.containers = vec![app]);
    Ok(())
}

/// Returns a pod whose container `app` has the variable LIVES.
async fn pod(hub: &FakeHub) -> Result<(Pod, Client)> {
    hub.activate("shop", "1.0.0", &[("LIVES", b"3")])?;
    set_containers(hub, 'a')?;
    let mut pod = with_variable(hub)?;
    let mut client = pod.start().await?;
    pod.wait_until_served(&mut client, "shop=1.0.0").await?;
    Ok((pod, client))
}

fn with_variable(hub: &FakeHub) -> Result<Pod> {
    let pod = Pod::new(hub)?.with(&["--notify", "app=in-place", "--variables", "app=LIVES"]);
    let folder = pod.path("variables").display().to_string();
    Ok(pod.with(&["--variables-dir", &folder]))
}

fn variables(pod: &Pod) -> String {
    fs::read_to_string(pod.path("variables/app")).unwrap_or_default()
}

/// Waits until the agent ends, and returns its exit code.
async fn wait_for_exit(pod: &mut Pod) -> Result<Option<i32>> {
    let mut agent = pod.agent.take().context("no agent runs")?;
    Ok(agent.process().wait_for_exit(WAIT_TIMEOUT).await?.code())
}

fn is_taken(report: &ReportRequest, version: &str) -> bool {
    report.acknowledged && report.configs[0].version.as_ref().is_some_and(|served| served.as_str() == version)
}

#[tokio::test]
async fn another_version_is_served_and_reported_after_the_restart_and_not_before() -> Result<()> {
    let hub = FakeHub::start()?;
    let (mut pod, _) = pod(&hub).await?;
    ensure!(variables(&pod) == "LIVES='3'\n", "{}", variables(&pod));
    hub.wait_for_report(WAIT_TIMEOUT, "it is reported", |report| is_taken(report, "1.0.0")).await?;
    let reports = hub.reports().len();
    hub.activate("shop", "1.0.1", &[("LIVES", b"5")])?;
    assert_eq!(wait_for_exit(&mut pod).await?, RESTART);
    ensure!(variables(&pod) == "LIVES='3'\n", "a container that crashes now starts with what it had");
    let early =
        |report: &ReportRequest| report.configs[0].version.as_ref().is_some_and(|version| version.as_str() == "1.0.1");
    ensure!(!hub.reports()[reports..].iter().any(|report| early(&report.request)), "it was reported before");

    let mut client = pod.start().await?;
    ensure!(variables(&pod) == "LIVES='5'\n", "they are there before the agent is ready");
    pod.wait_until_served(&mut client, "shop=1.0.1").await?;
    // The container is still the one of before, as far as the hub knows.
    let pending = |status: &Status| status.containers[0].notified.outcome == Outcome::Pending;
    let status = pod.status_when(&mut client, WAIT_TIMEOUT, "the restart is pending", pending).await?;
    ensure!(!status.containers[0].acknowledged, "{status:?}");
    set_containers(&hub, 'b')?;
    hub.wait_for_report(WAIT_TIMEOUT, "the restart is reported", |report| is_taken(report, "1.0.1")).await?;
    // The same content under another name ends nothing.
    hub.activate("shop", "1.0.2", &[("LIVES", b"5")])?;
    pod.wait_until_served(&mut client, "shop=1.0.2").await?;
    hub.wait_for_report(WAIT_TIMEOUT, "the name is reported", |report| is_taken(report, "1.0.2")).await?;
    let log = pod.agent.as_ref().map(nudge_tests::Agent::log).unwrap_or_default();
    ensure!(!log.contains("LIVES='5'"), "{log}");
    Ok(())
}

#[tokio::test]
async fn what_a_variable_cannot_express_ends_nothing_and_is_reported() -> Result<()> {
    let hub = FakeHub::start()?;
    let (pod, mut client) = pod(&hub).await?;
    for (version, values, says) in [
        ("2", vec![("other", &b"x"[..])], "the dictionary does not have it"),
        ("3", vec![("LIVES", &b"hunter2's"[..])], "holds a single quote"),
        ("4", vec![("LIVES", &b""[..])], "is empty"),
    ] {
        hub.activate("shop", version, &values)?;
        let refused = |status: &Status| {
            let problem = status.configs[0].problem.as_ref();
            problem.is_some_and(|problem| problem.reason == ProblemReason::CantApply && problem.message.contains(says))
        };
        let status = pod.status_when(&mut client, WAIT_TIMEOUT, says, refused).await?;
        assert_eq!(served(&status), "shop=1.0.0");
        hub.wait_for_report(WAIT_TIMEOUT, "it is reported", |report| {
            let problem = report.configs[0].problem.as_ref();
            problem.is_some_and(|problem| problem.reason == "CantApply" && problem.message.contains(says))
        })
        .await?;
    }
    ensure!(hub.reports().iter().all(|report| !report.text.contains("hunter2")), "a value is reported");
    // The way back ends nothing either.
    hub.activate("shop", "1.0.0", &[("LIVES", b"3")])?;
    pod.status_when(&mut client, WAIT_TIMEOUT, "all is well", |status| reason(status).is_none()).await?;
    hub.wait_for_report(WAIT_TIMEOUT, "it is reported", |report| is_taken(report, "1.0.0")).await?;
    Ok(())
}

#[tokio::test]
async fn a_pod_whose_variables_cannot_be_made_does_not_start_and_says_why() -> Result<()> {
    let hub = FakeHub::start()?;
    hub.activate("shop", "1.0.0", &[("LIVES", b"it's")])?;
    let mut pod = with_variable(&hub)?;
    pod.spawn()?;
    hub.wait_for_report(WAIT_TIMEOUT, "it is reported", |report| {
        let problem = report.configs[0].problem.as_ref();
        report.configs[0].version.is_none() && problem.is_some_and(|problem| problem.reason == "CantApply")
    })
    .await?;
    ensure!(fs::read_to_string(pod.path("state/not-ready"))?.contains("holds a single quote"), "wait-ready says why");
    hub.activate("shop", "1.0.1", &[("LIVES", b"3")])?;
    let mut client = pod.client().await?;
    pod.wait_until_served(&mut client, "shop=1.0.1").await?;
    ensure!(variables(&pod) == "LIVES='3'\n", "{}", variables(&pod));
    Ok(())
}

#[tokio::test]
async fn an_agent_that_was_killed_before_the_restart_does_not_command_it_at_once_and_is_not_believed() -> Result<()> {
    let hub = FakeHub::start()?;
    let (mut pod, _) = pod(&hub).await?;
    hub.activate("shop", "1.0.1", &[("LIVES", b"5")])?;
    assert_eq!(wait_for_exit(&mut pod).await?, RESTART);
    // The kubelet has started the agent alone.
    for _ in 0..3 {
        let mut client = pod.start().await?;
        let status = pod.wait_until_served(&mut client, "shop=1.0.1").await?;
        ensure!(!status.containers[0].acknowledged, "{status:?}");
        hub.wait_for_report(WAIT_TIMEOUT, "it is reported", |report| !report.acknowledged).await?;
        pod.kill().await?;
    }
    ensure!(hub.reports().iter().all(|report| !is_taken(&report.request, "1.0.1")), "it was believed");
    Ok(())
}

#[tokio::test]
async fn a_version_that_cannot_be_stored_ends_nothing_until_it_can() -> Result<()> {
    let hub = FakeHub::start()?;
    let (mut pod, _) = pod(&hub).await?;
    // As on a full disk: no other file can be written next to it.
    let draft = pod.path("state/last-good.new");
    fs::create_dir(&draft)?;
    hub.activate("shop", "1.0.1", &[("LIVES", b"5")])?;
    pod.logs("containers are not restarted with it").await?;
    fs::remove_dir(&draft)?;
    assert_eq!(wait_for_exit(&mut pod).await?, RESTART);
    let mut client = pod.start().await?;
    pod.wait_until_served(&mut client, "shop=1.0.1").await?;
    Ok(())
}

#[tokio::test]
async fn a_pod_that_cannot_start_continues_polling() -> Result<()> {
    let hub = FakeHub::start()?;
    // The next poll is later than the next attempt to write the variables.
    hub.say(|say| say.always = Some(Answer::Status(503, Some(2))));
    let mut pod = with_variable(&hub)?;
    pod.configs = TWO;
    pod.mount("shop", "0.9.0", "1", &[("LIVES", b"it's")])?;
    pod.spawn()?;
    hub.wait_for_polls(3, WAIT_TIMEOUT).await.map_err(|error| pod.explain(&error))?;
    hub.say(|say| say.always = None);
    hub.activate("keys", "7", &[("other", b"x")])?;
    hub.activate("shop", "1.0.0", &[("LIVES", b"3")])?;
    let mut client = pod.client().await?;
    let status = pod.wait_until_served(&mut client, "shop=1.0.0,keys=7").await?;
    ensure!(status.configs.iter().all(|config| config.problem.is_none()), "{status:?}");
    Ok(())
}

#[tokio::test]
async fn of_two_configs_the_one_that_cannot_be_expressed_is_refused_alone() -> Result<()> {
    let hub = FakeHub::start()?;
    hub.activate("shop", "1.0.0", &[("LIVES", b"3")])?;
    hub.activate("keys", "7", &[("other", b"x")])?;
    set_containers(&hub, 'a')?;
    let mut pod = with_variable(&hub)?;
    pod.configs = TWO;
    let mut client = pod.start().await?;
    pod.wait_until_served(&mut client, "shop=1.0.0,keys=7").await?;
    // Both arrive in one reply.
    let (mut bad, mut good) = (Ok(()), Ok(()));
    hub.say(|say| {
        bad = say.config("shop").set("1.0.1", &[("LIVES", b"it's")]);
        good = say.config("keys").set("8", &[("other", b"y")]);
    });
    bad.and(good)?;
    assert_eq!(wait_for_exit(&mut pod).await?, RESTART);
    let mut client = pod.start().await?;
    let refused = |status: &Status| reason(status) == Some(ProblemReason::CantApply);
    let status = pod.status_when(&mut client, WAIT_TIMEOUT, "the bad one is refused", refused).await?;
    assert_eq!((served(&status).as_str(), &status.configs[1].problem), ("shop=1.0.0,keys=8", &None));
    Ok(())
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_no_fault_of_the_version() -> Result<()> {
    let hub = FakeHub::start()?;
    hub.activate("shop", "1.0.0", &[("LIVES", b"3")])?;
    let mut pod = with_variable(&hub)?;
    fs::write(pod.path("variables"), "in the way")?;
    pod.spawn()?;
    hub.wait_for_report(WAIT_TIMEOUT, "it is reported", |report| {
        let problem = report.configs[0].problem.as_ref();
        problem.is_some_and(|problem| problem.reason == "Other" && problem.message.contains("can't be written"))
    })
    .await?;
    ensure!(fs::read_to_string(pod.path("state/not-ready"))?.contains("can't be written"), "wait-ready says why");
    fs::remove_file(pod.path("variables"))?;
    let mut client = pod.client().await?;
    let status = pod.wait_until_served(&mut client, "shop=1.0.0").await?;
    assert_eq!(reason(&status), None);
    hub.wait_for_report(WAIT_TIMEOUT, "it is over", |report| {
        is_taken(report, "1.0.0") && report.configs[0].problem.is_none()
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn what_the_process_before_the_restart_fetches_is_no_acknowledgement() -> Result<()> {
    let hub = FakeHub::start()?;
    let (mut pod, _) = pod(&hub).await?;
    hub.activate("shop", "1.0.1", &[("LIVES", b"5")])?;
    assert_eq!(wait_for_exit(&mut pod).await?, RESTART);
    // The container is still the one of before.
    let mut client = pod.start().await?;
    assert_eq!(client.get("/config").await?.status, 200);
    let fetched = |status: &Status| status.containers[0].fetched.as_ref() == Some(&status.etag);
    let status = pod.status_when(&mut client, WAIT_TIMEOUT, "it is fetched", fetched).await?;
    ensure!(!status.containers[0].acknowledged, "{status:?}");
    set_containers(&hub, 'b')?;
    hub.wait_for_report(WAIT_TIMEOUT, "the restart is reported", |report| is_taken(report, "1.0.1")).await?;
    Ok(())
}
