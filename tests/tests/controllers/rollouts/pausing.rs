//! A pause holds what moves, and of several changes during a rollout the last one counts.

use anyhow::{Result, ensure};
use nudge_api::VersionedConfigStatus;
use nudge_tests::{Installation, eventually};
use serde_json::json;

use super::rollout_under_test::{LONG, RolloutUnderTest};

#[tokio::test]
async fn a_pause_holds_and_the_last_word_counts() -> Result<()> {
    let Some((installation, replica)) = Installation::shared().await? else { return Ok(()) };
    let rollout = RolloutUnderTest::new(installation, replica.hub, 4, &["50%"]).await?;
    rollout.wants("2").await?;
    rollout.first_step("2").await?;
    rollout.set(json!({"rollout": {"paused": true}})).await?;
    let paused = |status: &VersionedConfigStatus| {
        status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.reason == "Paused")
    };
    let status = rollout.stands("it is paused", paused).await?;
    let assigned = rollout.assigned(&status).len();
    ensure!(assigned == 2, "{assigned} pods have the version assigned");
    for member in rollout.assigned(&status) {
        eventually(LONG, "those that have it assigned run it", async || member.was_notified("2").then_some(())).await?;
    }
    // Looked at again with nothing left to wait for, and it stays where it is.
    let generation = rollout.set(json!({"rollout": {"minReadySeconds": 0}})).await?;
    let seen = |status: &VersionedConfigStatus| {
        status.observed_generation == Some(generation) && status.pods.updated == status.pods.total
    };
    let status = rollout.stands("the spec is seen, and every pod runs what is assigned to it", seen).await?;
    ensure!(paused(&status) && rollout.assigned(&status).len() == assigned, "{status:#?}");
    rollout.set(json!({"rollout": {"paused": false, "minReadySeconds": 1}})).await?;
    rollout.is_current("2").await?;
    rollout.all_end_with("2").await?;

    // Three changes while pods are on their way.
    rollout.wants("3").await?;
    rollout.first_step("3").await?;
    rollout.set(json!({"current": "1"})).await?;
    rollout.set(json!({"rollout": {"steps": [{"pods": 1}]}})).await?;
    rollout.wants("4").await?;
    rollout.is_current("4").await?;
    rollout.all_end_with("4").await?;
    for member in &rollout.members {
        // Version 1 was the target for a moment, in which it may have begun.
        let notified = member.notified();
        let after = notified.iter().skip_while(|version| *version != "4");
        ensure!(
            after.clone().next().is_some() && after.clone().all(|version| version == "4"),
            "{}: {notified:?}",
            member.name
        );
    }
    Ok(())
}
