//! A published ConfigMap that the API server refuses: the cause is reported, and the rollout continues by itself, or is
//! rolled back at its deadline.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use nudge_api::{ConditionType, ConfigState, Reason, RolloutStage, VersionedConfigStatus, find_condition};
use nudge_tests::Installation;
use serde_json::json;

use super::rollout_under_test::RolloutUnderTest;

/// What all annotations of an object may have together, in bytes (`ValidateAnnotationsSize` of Kubernetes).
const ANNOTATIONS: usize = 256 * 1024;

/// Returns whether a condition says why the ConfigMap is refused.
fn says_why(status: &VersionedConfigStatus, kind: ConditionType, reason: Reason) -> bool {
    let condition = find_condition(&status.conditions, kind);
    condition.is_some_and(|condition| {
        let message = &condition.message;
        condition.reason == reason.as_str()
            && message.contains("refuses it with code 422")
            && message.contains("annotations")
    })
}

/// Returns a config at version 1 with one pod, and a ConfigMap of its name, with room for no further annotation.
async fn rollout() -> Result<Option<RolloutUnderTest>> {
    let Some((installation, replica)) = Installation::shared().await? else { return Ok(None) };
    let rollout = RolloutUnderTest::new(installation, replica.hub, 1, &["100%"]).await?;
    let metadata = json!({"name": "shop", "annotations": {"a": "x".repeat(ANNOTATIONS - 1)}});
    rollout.space.create_object::<ConfigMap>(json!({"metadata": metadata, "data": {"number": "0"}})).await?;
    rollout.set(json!({"objects": ["ConfigMap"]})).await?;
    let is_said = |status: &VersionedConfigStatus| says_why(status, ConditionType::Published, Reason::Refused);
    rollout.wait_for_status("the condition of the object says why", is_said).await?;
    Ok(Some(rollout))
}

fn waits_for_publishing(status: &VersionedConfigStatus) -> bool {
    status.rollout.stage == Some(RolloutStage::Restarting)
        && says_why(status, ConditionType::Ready, Reason::NotPublished)
        && find_condition(&status.conditions, ConditionType::Stalled).is_some_and(|stalled| stalled.status == "True")
}

#[tokio::test]
async fn what_cant_be_published_is_said_and_the_rollout_continues_when_it_can() -> Result<()> {
    let Some(rollout) = rollout().await? else { return Ok(()) };
    rollout.request_version("2").await?;
    rollout.wait_for_status("the rollout says what it waits for", waits_for_publishing).await?;
    let maps = rollout.space.api::<ConfigMap>();
    ensure!(maps.get("shop").await?.data.context("no data")?["number"] == "0");
    let smaller = Patch::Merge(json!({"metadata": {"annotations": {"a": null}}}));
    maps.patch("shop", &PatchParams::default(), &smaller).await?;
    rollout.wait_until_current("2").await?;
    ensure!(maps.get("shop").await?.data.context("no data")?["number"] == "2");
    Ok(())
}

#[tokio::test]
async fn what_cant_be_published_until_the_deadline_goes_back() -> Result<()> {
    let Some(rollout) = rollout().await? else { return Ok(()) };
    rollout.set(json!({"rollout": {"progressDeadlineSeconds": 10}})).await?;
    rollout.request_version("2").await?;
    let is_back =
        |status: &VersionedConfigStatus| status.state() == ConfigState::Failed && status.target_version.is_none();
    let status = rollout.wait_for_status("version 2 has failed, and every pod is back", is_back).await?;
    let failure = status.rollout.failure.context("no failure")?;
    ensure!(failure.reason == Reason::ProgressDeadlineExceeded, "{failure:?}");
    ensure!(failure.message.contains("refuses it with code 422"), "{failure:?}");
    rollout.all_end_with("1").await
}
