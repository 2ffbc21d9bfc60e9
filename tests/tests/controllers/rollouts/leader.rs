//! The leader is killed at random moments: the rollout always ends right, and no application is notified of a version
//! twice.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use nudge_api::VersionedConfigStatus;
use nudge_tests::cluster::Options;
use nudge_tests::{Cluster, Installation, Pair, eventually};
use rand::RngExt as _;
use serde_json::json;

use super::plain::Plain;
use super::rollout_under_test::{RolloutUnderTest, WAIT_TIMEOUT, by_hand};

/// About as long as a rollout of these tests takes; a kill may come after its end.
const ROLLOUT_DURATION: Duration = Duration::from_millis(5500);
/// How long no replica leads: longer than harm is watched before a verdict.
const ABSENCE_DURATION: Duration = Duration::from_secs(10);

#[tokio::test]
async fn the_leader_is_killed_at_random_moments_and_no_application_is_notified_twice() -> Result<()> {
    let Some(cluster) = Cluster::installed(&Options::default()).await? else { return Ok(()) };
    let installation = Installation { cluster: &cluster };
    let mut pair = Pair::start(&installation).await?;
    let rollout = RolloutUnderTest::new(&installation, pair.hub(), 4, &["25%", "50%"]).await?;
    for kill in 0..by_hand("NUDGE_LEADER_KILLS", 3) {
        let version = (kill + 2).to_string();
        let leads = pair.leader().await?;
        let began = Instant::now();
        rollout.request_version(&version).await?;
        let moment = rand::rng().random_range(Duration::ZERO..ROLLOUT_DURATION);
        tokio::time::sleep(moment).await; // the moment is what is tried, nothing is waited for
        let (stage, notified) = (
            rollout.status().await?.rollout.stage,
            rollout.members.iter().filter(|member| member.was_notified(&version)).count(),
        );
        pair.kill(leads)?;
        rollout.wait_until_current(&version).await?;
        rollout.all_end_with(&version).await?;
        eprintln!(
            "kill {}: after {} ms, at {stage:?} with {notified} of {} notified; version {version} current after {} ms",
            kill + 1,
            moment.as_millis(),
            rollout.members.len(),
            began.elapsed().as_millis(),
        );
        for member in &rollout.members {
            let all: Vec<String> = (2..kill + 3).map(|version: usize| version.to_string()).collect();
            ensure!(member.notified_versions() == all, "{}: {:?}", member.name, member.notified_versions());
        }
        pair.replace(leads).await?;
    }
    Ok(())
}

#[tokio::test]
async fn what_happens_while_nobody_leads_holds_and_is_not_blamed() -> Result<()> {
    let Some(cluster) = Cluster::installed(&Options::default()).await? else { return Ok(()) };
    let installation = Installation { cluster: &cluster };
    let mut pair = Pair::start(&installation).await?;
    let rollout = RolloutUnderTest::new(&installation, pair.hub(), 4, &["1"]).await?;
    rollout.set(json!({"rollout": {"minReadySeconds": 3600}})).await?;
    rollout.request_version("2").await?;
    let status = rollout.step_runs("2").await?;
    let only = rollout.assigned(&status)[0];
    let leads = pair.leader().await?;
    pair.kill(leads)?;
    rollout.make_ready(&only.name, false).await?;
    let generation = rollout.set(json!({"rollout": {"minReadySeconds": 1}})).await?;
    let waits = |status: &VersionedConfigStatus| {
        let of_pods = |condition: &Condition| condition.message.contains("not run version 2 yet, or ");
        status.observed_generation == Some(generation) && status.conditions.iter().any(of_pods)
    };
    rollout.wait_for_status("the new leader waits for it", waits).await?;
    tokio::time::sleep(ABSENCE_DURATION).await; // the time is what is tried, nothing is waited for
    let status = rollout.status().await?;
    ensure!(status.rollout.failure.is_none() && rollout.assigned(&status).len() == 1, "{status:#?}");
    rollout.make_ready(&only.name, true).await?;
    rollout.wait_until_current("2").await?;
    rollout.all_end_with("2").await
}

#[tokio::test]
async fn the_leader_is_killed_while_a_workload_restarts_and_it_is_restarted_once() -> Result<()> {
    let Some(cluster) = Cluster::installed(&Options::default().workloads()).await? else { return Ok(()) };
    let installation = Installation { cluster: &cluster };
    let mut pair = Pair::start(&installation).await?;
    let rollout = RolloutUnderTest::new(&installation, pair.hub(), 2, &["100%"]).await?;
    let plain = Plain::start(&rollout.space).await?;
    plain.comes_up(false);
    let leads = pair.leader().await?;
    rollout.request_version("2").await?;
    let deployments = rollout.space.api::<Deployment>();
    let restarted = async || {
        let object = deployments.get("plain").await.ok()?;
        (object.metadata.generation == Some(2)).then_some(())
    };
    eventually(WAIT_TIMEOUT, "the Deployment has a new template", restarted).await?;
    pair.kill(leads)?;
    pair.leader().await?;
    plain.comes_up(true);
    rollout.wait_until_current("2").await?;
    ensure!(deployments.get("plain").await?.metadata.generation == Some(2), "it was restarted again");
    for member in &rollout.members {
        ensure!(member.notified_versions() == ["2"], "{}: {:?}", member.name, member.notified_versions());
    }
    Ok(())
}
