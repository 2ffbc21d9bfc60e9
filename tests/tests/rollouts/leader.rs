//! The leader is killed at random moments: the rollout always ends right, and no application is told of a version twice.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use nudge_tests::cluster::Options;
use nudge_tests::{Cluster, Installation, Pair, eventually};
use rand::RngExt as _;

use super::plain::Plain;
use super::rollout_under_test::{LONG, RolloutUnderTest, by_hand};

/// About as long as a rollout of these tests takes; a kill may come after its end.
const ROLLOUT: Duration = Duration::from_millis(5500);

#[tokio::test]
async fn the_leader_is_killed_at_random_moments_and_no_application_is_told_twice() -> Result<()> {
    let Some(cluster) = Cluster::start(&Options::default()).await? else { return Ok(()) };
    let Some(installation) = Installation::apply(&cluster).await? else { return Ok(()) };
    let mut pair = Pair::start(&installation).await?;
    let scene = RolloutUnderTest::new(&installation, pair.hub(), 4, "25%").await?;
    for kill in 0..by_hand("NUDGE_LEADER_KILLS", 3) {
        let version = (kill + 2).to_string();
        let leads = pair.leader().await?;
        let began = Instant::now();
        scene.wants(&version).await?;
        let moment = rand::rng().random_range(Duration::ZERO..ROLLOUT);
        tokio::time::sleep(moment).await; // the moment is what is tried, nothing is waited for
        let (stage, notified) =
            (scene.status().await?.rollout.stage, scene.members.iter().filter(|it| it.was_notified(&version)).count());
        pair.kill(leads)?;
        scene.is_current(&version).await?;
        scene.all_end_with(&version).await?;
        eprintln!(
            "kill {}: after {} ms, at {stage:?} with {notified} of {} told; version {version} current after {} ms",
            kill + 1,
            moment.as_millis(),
            scene.members.len(),
            began.elapsed().as_millis(),
        );
        for member in &scene.members {
            let all: Vec<String> = (2..kill + 3).map(|version: usize| version.to_string()).collect();
            ensure!(member.notified() == all, "{}: {:?}", member.name, member.notified());
        }
        pair.replace(leads).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_leader_is_killed_while_a_workload_restarts_and_it_is_restarted_once() -> Result<()> {
    let Some(cluster) = Cluster::start(&Options::default()).await? else { return Ok(()) };
    let Some(installation) = Installation::apply(&cluster).await? else { return Ok(()) };
    let mut pair = Pair::start(&installation).await?;
    let scene = RolloutUnderTest::new(&installation, pair.hub(), 2, "100%").await?;
    let plain = Plain::start(&scene.space).await?;
    plain.comes_up(false);
    let leads = pair.leader().await?;
    scene.wants("2").await?;
    let deployments = scene.space.api::<Deployment>();
    let restarted = async || {
        let object = deployments.get("plain").await.ok()?;
        (object.metadata.generation == Some(2)).then_some(())
    };
    eventually(LONG, "the Deployment has a new template", restarted).await?;
    pair.kill(leads)?;
    pair.leader().await?;
    plain.comes_up(true);
    scene.is_current("2").await?;
    ensure!(deployments.get("plain").await?.metadata.generation == Some(2), "it was restarted again");
    for member in &scene.members {
        ensure!(member.notified() == ["2"], "{}: {:?}", member.name, member.notified());
    }
    Ok(())
}
