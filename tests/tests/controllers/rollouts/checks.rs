//! Versions that containers are asked about: one that they refuse reaches one pod and is served by none.

use anyhow::{Context, Result, ensure};
use hyper::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use nudge_api::{ConfigState, VersionedConfigStatus};
use nudge_tests::fakes::hook_server::Answer;
use nudge_tests::{HookServer, Installation, eventually};
use serde_json::json;

use super::rollout_under_test::{RolloutUnderTest, WAIT_TIMEOUT};

const PODS: usize = 4;

fn reason(status: &VersionedConfigStatus) -> Vec<&str> {
    status.conditions.iter().map(|condition| condition.reason.as_str()).collect()
}

/// Returns what the pods serve, by their files.
fn served_versions(rollout: &RolloutUnderTest) -> Vec<String> {
    let number = |path| std::fs::read_to_string(path).unwrap_or_default();
    rollout.members.iter().map(|member| number(member.pod.path("files").join("number"))).collect()
}

#[tokio::test]
async fn a_version_that_a_container_refuses_is_asked_of_one_pod_and_served_by_none() -> Result<()> {
    let Some((installation, replica)) = Installation::shared().await? else { return Ok(()) };
    let check = HookServer::willing().await?;
    let rollout = RolloutUnderTest::with_check_url(installation, replica.hub, PODS, check.url()).await?;
    ensure!(check.deliveries().is_empty(), "pods start with the version without a question");
    check.answer(Answer::Text(StatusCode::UNPROCESSABLE_ENTITY, "number: must be odd".to_owned()));
    rollout.request_version("2").await?;
    let failed =
        |status: &VersionedConfigStatus| status.state() == ConfigState::Failed && status.target_version.is_none();
    let status = rollout.wait_for_status("it has failed", failed).await?;
    let failure = status.rollout.failure.context("no failure")?;
    ensure!(failure.reason.as_str() == "CheckRefused", "{failure:?}");
    ensure!(failure.message.contains("reported about version 2: config shop: container app refuses it"), "{failure:?}");
    ensure!(failure.message.ends_with(": number: must be odd"), "{failure:?}");
    let asked = check.deliveries();
    ensure!(asked.len() == 1 && asked[0].version()? == "2", "{asked:?}");
    ensure!(
        served_versions(&rollout) == vec!["1"; PODS] && !rollout.members.iter().any(|member| member.was_notified("2"))
    );
    rollout
        .wait_for_status("all pods are well", |status| status.pods.on_target == u32::try_from(PODS).unwrap_or(0))
        .await?;
    // Another version is taken by all of them, each of which is asked once.
    check.answer(Answer::Status(StatusCode::NO_CONTENT));
    rollout.request_version("3").await?;
    rollout.wait_until_current("3").await?;
    rollout.all_end_with("3").await?;
    ensure!(check.deliveries().len() == 1 + PODS, "{}", check.deliveries().len());
    // The way back is not asked about.
    check.answer(Answer::Status(StatusCode::UNPROCESSABLE_ENTITY));
    rollout.request_version("1").await?;
    rollout.wait_until_current("1").await?;
    rollout.all_end_with("1").await?;
    ensure!(check.deliveries().len() == 1 + PODS, "{}", check.deliveries().len());
    Ok(())
}

#[tokio::test]
async fn a_container_that_does_not_answer_is_silent_and_holds_the_rollout() -> Result<()> {
    let Some((installation, replica)) = Installation::shared().await? else { return Ok(()) };
    let check = HookServer::start(Answer::Hang).await?;
    let rollout = RolloutUnderTest::with_check_url(installation, replica.hub, PODS, check.url()).await?;
    rollout.set(json!({"rollout": {"ackTimeoutSeconds": 2}})).await?;
    rollout.request_version("2").await?;
    let silent = |status: &VersionedConfigStatus| reason(status).contains(&"NotAcknowledged");
    let status = rollout.wait_for_status("the first pod is silent", silent).await?;
    let [only] = &rollout.assigned(&status)[..] else { anyhow::bail!("{status:#?}") };
    let pods = rollout.space.api::<Pod>();
    eventually(WAIT_TIMEOUT, "its condition says why", async || {
        let conditions = pods.get(&only.name).await.ok()?.status?.conditions?;
        let current = conditions.into_iter().find(|condition| condition.type_ == nudge_protocol::pod::CONDITION)?;
        (current.reason? == "CheckFailed" && current.message?.contains("has not answered its check within 2 s"))
            .then_some(())
    })
    .await?;
    ensure!(served_versions(&rollout) == vec!["1"; PODS]);
    // The attempt that hangs is cut, and the next one counts.
    check.answer(Answer::Status(StatusCode::OK));
    rollout.wait_until_current("2").await?;
    rollout.all_end_with("2").await
}
