//! A hold lets no version continue, but lets a bad version be rolled back. Of several changes during a rollout the last
//! change counts.

use anyhow::{Context, Result, ensure};
use nudge_api::{ConfigState, VersionedConfigStatus};
use nudge_tests::{Installation, eventually};
use serde_json::json;

use super::rollout_under_test::{RolloutUnderTest, WAIT_TIMEOUT};

/// Returns whether nothing but the hold keeps the next step back.
fn on_hold(status: &VersionedConfigStatus) -> bool {
    status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.reason == "OnHold")
}

#[tokio::test]
async fn a_hold_lets_no_step_go_out_and_the_last_word_counts() -> Result<()> {
    let Some((installation, replica)) = Installation::shared().await? else { return Ok(()) };
    let rollout = RolloutUnderTest::new(installation, replica.hub, 4, &["50%"]).await?;
    rollout.request_version("2").await?;
    rollout.first_step("2").await?;
    rollout.set(json!({"rollout": {"hold": {"reason": "audit"}}})).await?;
    let status = rollout.wait_for_status("it is on hold", on_hold).await?;
    let assigned = rollout.assigned(&status).len();
    ensure!(assigned == 2, "{assigned} pods have the version assigned");
    for member in rollout.assigned(&status) {
        eventually(WAIT_TIMEOUT, "those that have it assigned run it", async || member.was_notified("2").then_some(()))
            .await?;
    }
    // Looked at again with nothing left to wait for, and it stays where it is.
    let generation = rollout.set(json!({"rollout": {"minReadySeconds": 0}})).await?;
    let read = |status: &VersionedConfigStatus| {
        status.observed_generation == Some(generation) && status.pods.ready == status.pods.total
    };
    let status = rollout.wait_for_status("the spec is seen, and every pod runs what is assigned to it", read).await?;
    ensure!(on_hold(&status) && rollout.assigned(&status).len() == assigned, "{status:#?}");
    rollout.set(json!({"rollout": {"hold": null, "minReadySeconds": 1}})).await?;
    rollout.wait_until_current("2").await?;
    rollout.all_end_with("2").await?;

    // Three changes while pods are on their way.
    rollout.request_version("3").await?;
    rollout.first_step("3").await?;
    rollout.set(json!({"version": "1"})).await?;
    rollout.set(json!({"rollout": {"steps": [{"pods": 1}]}})).await?;
    rollout.request_version("4").await?;
    rollout.wait_until_current("4").await?;
    rollout.all_end_with("4").await?;
    for member in &rollout.members {
        // Version 1 was the target for a moment, in which it may have begun.
        let notified = member.notified_versions();
        let after = notified.iter().skip_while(|version| *version != "4");
        ensure!(
            after.clone().next().is_some() && after.clone().all(|version| version == "4"),
            "{}: {notified:?}",
            member.name
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_bad_version_goes_back_while_its_config_is_on_hold() -> Result<()> {
    let Some((installation, replica)) = Installation::shared().await? else { return Ok(()) };
    let rollout = RolloutUnderTest::new(installation, replica.hub, 4, &["1"]).await?;
    rollout.set(json!({"rollout": {"minReadySeconds": 3600}})).await?;
    rollout.request_version("2").await?;
    rollout.step_runs("2").await?;
    rollout.set(json!({"rollout": {"hold": {"reason": "audit"}, "minReadySeconds": 1}})).await?;
    let status = rollout.wait_for_status("it is on hold", on_hold).await?;
    let [sick] = &rollout.assigned(&status)[..] else { anyhow::bail!("{status:#?}") };
    rollout.make_ready(&sick.name, false).await?;
    let failed =
        |status: &VersionedConfigStatus| status.state() == ConfigState::Failed && status.target_version.is_none();
    let status = rollout.wait_for_status("it has failed", failed).await?;
    let failure = status.rollout.failure.as_ref().context("no failure")?;
    ensure!((failure.version.as_str(), failure.reason.as_str()) == ("2", "PodNotReady"), "{failure:?}");
    ensure!(status.current_version.as_deref() == Some("1"), "{status:#?}");
    rollout.all_end_with("1").await?;
    rollout.make_ready(&sick.name, true).await?;

    // The end of the hold requests nothing.
    let generation = rollout.set(json!({"rollout": {"hold": null}})).await?;
    let read = |status: &VersionedConfigStatus| status.observed_generation == Some(generation);
    let after = rollout.wait_for_status("the spec is seen", read).await?;
    ensure!(failed(&after) && after.releases == status.releases, "{after:#?}");
    // Another version meanwhile does.
    rollout.request_version("1").await?;
    rollout.wait_until_current("1").await?;
    rollout.request_version("2").await?;
    rollout.wait_until_current("2").await?;
    rollout.all_end_with("2").await
}
