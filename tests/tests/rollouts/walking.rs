//! A change walks batch by batch; a bad one stops at the first batch and everybody comes back.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use nudge_api::{Phase, VersionedConfig};
use nudge_tests::Installation;

use super::rollout_under_test::{LONG, Member, RolloutUnderTest, WORKLOADS, by_hand, quarter};

/// Follows a rollout to its end: before another batch is assigned, all of the one before have the version.
async fn walks(rollout: &RolloutUnderTest, version: &str) -> Result<()> {
    let began = Instant::now();
    let generation = rollout.wants(version).await?;
    let batch = quarter(rollout.members.len());
    let mut before: Vec<&Member> = Vec::new();
    let mut batches = 0;
    loop {
        ensure!(began.elapsed() < LONG, "{:#?}", rollout.status().await?);
        let status = rollout.status().await?;
        if status.observed_generation != Some(generation) {
            // It is still of what was before.
            tokio::task::yield_now().await;
            continue;
        }
        if status.phase == Phase::Current && status.current.as_deref() == Some(version) {
            break;
        }
        ensure!(status.phase != Phase::Failed && status.phase != Phase::RollingBack, "{status:#?}");
        let now = rollout.assigned(&status);
        if now.len() == before.len() {
            tokio::task::yield_now().await;
            continue;
        }
        for workload in WORKLOADS.map(|name| format!("Deployment/{name}")) {
            let of = |members: &[&Member]| members.iter().filter(|member| member.workload == workload).count();
            ensure!(of(&now) - of(&before) <= batch, "{} to {} of {workload} at once", of(&before), of(&now));
        }
        for member in &before {
            ensure!(
                member.was_notified(version),
                "{} has not taken version {version}, and others have it assigned",
                member.name
            );
        }
        batches += 1;
        eprintln!("{:6} ms: {} of {} pods are assigned", began.elapsed().as_millis(), now.len(), rollout.members.len());
        before = now;
    }
    eprintln!("{:6} ms: version {version} is current", began.elapsed().as_millis());
    ensure!(batches >= 2 && before.len() == rollout.members.len(), "{batches} batches, {} pods", before.len());
    rollout.all_end_with(version).await
}

/// A version with which every application becomes unready.
async fn fails(rollout: &RolloutUnderTest, good: &str, bad: &str) -> Result<()> {
    let began = Instant::now();
    let stamp = |what: &str| eprintln!("{:6} ms: {what}", began.elapsed().as_millis());
    rollout.wants(bad).await?;
    let mut sick: Vec<&Member> = Vec::new();
    let mut unready = None;
    let mut assigned_back = None;
    let status = loop {
        ensure!(began.elapsed() < LONG, "{:#?}", rollout.status().await?);
        let fall = rollout.members.iter().filter(|it| it.was_notified(bad));
        let fall: Vec<&Member> = fall.filter(|it| sick.iter().all(|sick| sick.uid != it.uid)).collect();
        for member in fall {
            rollout.make_ready(&member.name, false).await?;
            unready.get_or_insert_with(Instant::now);
            stamp(&format!("{} has version {bad} and is not Ready", member.name));
            sick.push(member);
        }
        let status = rollout.status().await?;
        if status.phase == Phase::RollingBack && assigned_back.is_none() {
            ensure!(rollout.assigned(&status).is_empty(), "{status:#?}");
            stamp("all are assigned the version before");
            assigned_back = Some(Instant::now());
        }
        if status.phase == Phase::Failed {
            assigned_back.get_or_insert_with(Instant::now);
            break status;
        }
    };
    stamp("Failed: all are back");
    let (unready, assigned_back) =
        (unready.context("none was unready")?, assigned_back.context("none was assigned back")?);
    eprintln!(
        "from the first unready to all assigned back: at most {} ms",
        assigned_back.saturating_duration_since(unready).as_millis()
    );
    let batch = quarter(rollout.members.len());
    for workload in WORKLOADS.map(|name| format!("Deployment/{name}")) {
        let count = rollout.members.iter().filter(|it| it.workload == workload && it.was_notified(bad)).count();
        ensure!(count <= batch, "{count} pods of {workload} were assigned the bad version");
    }
    rollout.all_end_with(good).await?;

    ensure!(status.current.as_deref() == Some(good) && status.target.is_none(), "{status:#?}");
    let failure = status.rollout.failure.context("no failure")?;
    ensure!((failure.version.as_str(), failure.reason.as_str()) == (bad, "PodNotReady"), "{failure:?}");
    let condition = |kind: &str| status.conditions.iter().find(|condition| condition.type_ == kind);
    let stalled = condition("Stalled").context("not Stalled")?;
    ensure!((stalled.status.as_str(), stalled.reason.as_str()) == ("True", "Failed"), "{stalled:?}");
    ensure!(stalled.message.contains("was Ready and is not"), "{stalled:?}");
    ensure!(condition("Ready").is_some_and(|ready| ready.status == "False"), "{:?}", status.conditions);
    for reason in ["RollingBack", "Failed"] {
        let event = rollout.has_event(reason).await?;
        ensure!(event.type_.as_deref() == Some("Warning"), "{event:?}");
    }
    let spec = rollout.space.api::<VersionedConfig>().get("shop").await?.spec;
    ensure!(spec.current.as_deref() == Some(bad), "spec.current is the user's: {:?}", spec.current);
    for member in sick {
        rollout.make_ready(&member.name, true).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_change_walks_batch_by_batch_and_a_bad_one_stops_at_the_first() -> Result<()> {
    let Some((installation, replica)) = Installation::shared().await? else { return Ok(()) };
    let pods = by_hand("NUDGE_ROLLOUT_PODS", 40);
    let rollout = RolloutUnderTest::new(installation, replica.hub, pods, "25%").await?;
    walks(&rollout, "2").await?;
    fails(&rollout, "2", "3").await?;
    walks(&rollout, "4").await
}
