//! Pods whose applications read no key that changes: they get the version, are not notified, and hold nothing up.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use nudge_core::pods::condition;
use nudge_protocol::pod::CONDITION;
use nudge_tests::Installation;

use super::rollout_under_test::RolloutUnderTest;

#[tokio::test]
async fn a_version_that_no_application_reads_becomes_current_and_notifies_nobody() -> Result<()> {
    let Some((installation, replica)) = Installation::shared().await? else { return Ok(()) };
    let rollout = RolloutUnderTest::reading_keys(installation, replica.hub, 4, "db.*").await?;
    rollout.request_version("2").await?;
    rollout.wait_until_current("2").await?;
    let status = rollout.wait_for_status("all pods run version 2", |status| status.pods.summary == "4/4").await?;
    ensure!(status.rollout.failure.is_none(), "{status:#?}");
    rollout.all_end_with("2").await?;
    for member in &rollout.members {
        ensure!(member.notified_versions().is_empty(), "{} was notified", member.name);
    }
    let pods = rollout.space.api::<Pod>().list(&ListParams::default()).await?.items;
    let reasons = pods.iter().filter_map(|pod| condition(pod, CONDITION)?.reason.as_deref());
    ensure!(reasons.clone().count() == 4 && reasons.clone().all(|reason| reason == "Unchanged"), "{pods:#?}");
    Ok(())
}
