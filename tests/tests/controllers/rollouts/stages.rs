//! Trouble in every stage of a rollout: pods go and are born, the API server is away. It ends as it would have without.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use nudge_api::{ConfigState, RolloutStage, VersionedConfigStatus};
use nudge_tests::cluster::{Options, Wire};
use nudge_tests::{Cluster, Installation, Pair, ReplicaOptions, eventually};
use serde_json::json;

use super::plain::Plain;
use super::rollout_under_test::{RolloutUnderTest, WAIT_TIMEOUT, WORKLOADS, by_hand};

/// What happens in each stage.
enum Trouble<'a> {
    /// A pod that was notified is deleted, and one of each workload is born.
    Pods,
    /// The control plane does not reach the API server for this time.
    Away(Wire, Duration),
    /// The leader is killed, and another takes over.
    Leader(Box<Pair<'a>>),
}

impl Trouble<'_> {
    async fn cause(&mut self, rollout: &mut RolloutUnderTest, stage: &str, spared: &[String]) -> Result<()> {
        let before = rollout.status().await?;
        match self {
            Self::Pods => {
                let gone =
                    rollout.members.iter().find(|member| !spared.contains(&member.name)).context("nobody left")?;
                let gone = gone.name.clone();
                rollout.bury(&gone).await?;
                for workload in WORKLOADS {
                    rollout.bear(workload).await?;
                }
                let total = u32::try_from(rollout.members.len())?;
                rollout.wait_for_status("they are counted", |status| status.pods.total == total).await?;
            }
            Self::Away(wire, time) => {
                wire.cut();
                tokio::time::sleep(*time).await; // the time is what is tried, nothing is waited for
                wire.release();
            }
            Self::Leader(pair) => {
                let leads = pair.leader().await?;
                pair.kill(leads)?;
                pair.leader().await?;
                pair.replace(leads).await?;
            }
        }
        let after = rollout.status().await?;
        ensure!(after.rollout.stage == before.rollout.stage, "{stage} did not hold: {after:#?}");
        eprintln!("{stage}: {:?} at {}", after.rollout.stage, after.pods.summary);
        Ok(())
    }
}

fn is_at(stage: RolloutStage) -> impl Fn(&VersionedConfigStatus) -> bool {
    move |status| status.rollout.stage == Some(stage)
}

/// Returns a pod whose agent says nothing more keeps the way back open. Its name, and that of another that was
/// notified.
async fn silent(rollout: &RolloutUnderTest, target: &str) -> Result<[String; 2]> {
    let status = rollout.step_runs(target).await?;
    let assigned = rollout.assigned(&status);
    let [first, other, ..] = &assigned[..] else { anyhow::bail!("{} have it assigned", assigned.len()) };
    ensure!(first.was_notified(target) && other.was_notified(target), "notified of something else");
    first.signal_agent(Signal::SIGSTOP)?;
    Ok([first.name.clone(), other.name.clone()])
}

fn continues(rollout: &RolloutUnderTest, name: &str) -> Result<()> {
    let member = rollout.members.iter().find(|member| member.name == name).context("no such member")?;
    member.signal_agent(Signal::SIGCONT)
}

async fn in_every_stage(
    installation: &Installation<'_>,
    hub: std::net::SocketAddr,
    trouble: &mut Trouble<'_>,
) -> Result<()> {
    let mut rollout = RolloutUnderTest::new(installation, hub, 8, &["50%"]).await?;
    let plain = Plain::start(&rollout.space).await?;

    rollout.set(json!({"rollout": {"minReadySeconds": 3600}})).await?;
    plain.comes_up(false);
    rollout.request_version("2").await?;
    rollout.first_step("2").await?;
    trouble.cause(&mut rollout, "moving", &[]).await?;
    rollout.set(json!({"rollout": {"minReadySeconds": 0, "bakeSeconds": 3600}})).await?;
    rollout.wait_for_status("it is watched", is_at(RolloutStage::Baking)).await?;
    trouble.cause(&mut rollout, "baking", &[]).await?;
    rollout.set(json!({"rollout": {"bakeSeconds": 0}})).await?;
    rollout.wait_for_status("workloads are restarted", is_at(RolloutStage::Restarting)).await?;
    trouble.cause(&mut rollout, "restarting", &[]).await?;
    plain.comes_up(true);
    rollout.wait_until_current("2").await?;
    rollout.all_end_with("2").await?;

    rollout.set(json!({"rollout": {"minReadySeconds": 3600}})).await?;
    rollout.request_version("3").await?;
    let [silent_one, sick] = silent(&rollout, "3").await?;
    rollout.make_ready(&sick, false).await?;
    rollout.wait_for_status("it rolls back", is_at(RolloutStage::RollingBack)).await?;
    trouble.cause(&mut rollout, "rolling back", &[silent_one.clone(), sick.clone()]).await?;
    continues(&rollout, &silent_one)?;
    let status = rollout.wait_for_status("it has failed", |status| status.state() == ConfigState::Failed).await?;
    ensure!(status.current_version.as_deref() == Some("2"), "{status:#?}");
    rollout.all_end_with("2").await?;
    rollout.make_ready(&sick, true).await?;

    rollout.request_version("4").await?;
    let [silent_one, other] = silent(&rollout, "4").await?;
    rollout.request_version("1").await?;
    rollout.wait_for_status("pods return to the previous version", is_at(RolloutStage::Returning)).await?;
    trouble.cause(&mut rollout, "returning", &[silent_one.clone(), other]).await?;
    rollout.set(json!({"rollout": {"minReadySeconds": 0}})).await?;
    continues(&rollout, &silent_one)?;
    rollout.wait_until_current("1").await?;
    rollout.all_end_with("1").await?;
    for member in &rollout.members {
        let notified = member.notified_versions();
        ensure!(notified.windows(2).all(|pair| pair[0] != pair[1]), "{} was notified twice: {notified:?}", member.name);
    }
    Ok(())
}

#[tokio::test]
async fn pods_go_and_are_born_in_every_stage() -> Result<()> {
    let Some((installation, replica)) = Installation::shared().await? else { return Ok(()) };
    in_every_stage(installation, replica.hub, &mut Trouble::Pods).await
}

#[tokio::test]
async fn another_leads_in_every_stage() -> Result<()> {
    let Some(cluster) = Cluster::installed(&Options::default().workloads()).await? else { return Ok(()) };
    let installation = Installation { cluster: &cluster };
    let pair = Pair::start(&installation).await?;
    let hub = pair.hub();
    in_every_stage(&installation, hub, &mut Trouble::Leader(Box::new(pair))).await
}

/// `NUDGE_AWAY_SECONDS` sets for how long.
#[tokio::test]
async fn the_api_server_is_away_in_every_stage() -> Result<()> {
    let Some(cluster) = Cluster::installed(&Options::default().workloads()).await? else { return Ok(()) };
    let installation = Installation { cluster: &cluster };
    let wire = cluster.wire().await?;
    let options = ReplicaOptions::with(&["--lease-seconds=3", "--watch-seconds=3"]);
    let replica = installation.replica_by(&wire, &options).await?;
    let away = Duration::from_secs(by_hand("NUDGE_AWAY_SECONDS", 4));
    let hub = replica.hub;
    in_every_stage(&installation, hub, &mut Trouble::Away(wire, away)).await?;
    eventually(WAIT_TIMEOUT, "it leads again", async || {
        replica.metric("nudge_leader").await.is_ok_and(|it| it > 0.0).then_some(())
    })
    .await
}
