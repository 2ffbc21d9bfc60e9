//! A hub that is away holds a rollout for as long as it is, and the version is not blamed.

use std::time::Duration;

use anyhow::{Result, ensure};
use kube::api::PostParams;
use nix::sys::signal::Signal;
use nudge_api::{VersionedConfig, VersionedConfigSpec, VersionedConfigStatus};
use nudge_tests::cluster::Options;
use nudge_tests::{Cluster, Installation, ReplicaOptions, eventually};
use serde_json::json;

use super::rollout_under_test::{RolloutUnderTest, WAIT_TIMEOUT};

/// How long the leader may take to notice that the hub is away.
const NOTICE_TIMEOUT: Duration = Duration::from_mins(1);

/// Returns whether the rollout is held because the hub is away.
fn is_held_for_hub(status: &VersionedConfigStatus) -> bool {
    status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.reason == "HubAway")
}

#[tokio::test]
async fn a_rollout_outlasts_a_hub_that_is_away_for_longer_than_its_deadline() -> Result<()> {
    let Some(cluster) = Cluster::start(&Options::default()).await? else { return Ok(()) };
    let Some(installation) = Installation::apply_apart(&cluster).await? else { return Ok(()) };
    let apart = installation.apart(&ReplicaOptions::quick()).await?;
    let configs = installation.enabled("trust").await?.api::<VersionedConfig>();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let config = VersionedConfig::new("trust", VersionedConfigSpec::default());
    let trusted = async || configs.create(&dry, &config).await.ok().map(drop);
    eventually(WAIT_TIMEOUT, "the API server trusts the webhooks", trusted).await?;
    let rollout = RolloutUnderTest::new(&installation, apart.hub.hub, 4, &["1"]).await?;
    let deadline = json!({"rollout": {"progressDeadlineSeconds": NOTICE_TIMEOUT.as_secs(), "ackTimeoutSeconds": 5}});
    rollout.set(deadline).await?;
    apart.hub.signal(Signal::SIGSTOP)?;
    rollout.request_version("2").await?;
    rollout.first_step("2").await?;
    rollout.wait_for_status("the hub is away", is_held_for_hub).await?;
    tokio::time::sleep(NOTICE_TIMEOUT).await; // the time is what is tried, nothing is waited for
    let status = rollout.status().await?;
    ensure!(is_held_for_hub(&status) && status.rollout.failure.is_none(), "{status:#?}");
    ensure!(rollout.assigned(&status).len() == 1, "no other pod gets it: {status:#?}");
    ensure!(apart.control.metric_where("nudge_configs_withheld", "reason=\"HubAway\"").await? > 0.5, "it is counted");
    apart.hub.signal(Signal::SIGCONT)?;
    rollout.wait_until_current("2").await?;
    rollout.all_end_with("2").await
}
