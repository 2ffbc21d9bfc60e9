//! A change walks step by step; a bad one stops at the first pod and everybody comes back.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nudge_api::{ConfigState, VersionedConfig};
use nudge_tests::Installation;

use super::rollout_under_test::{Member, RolloutUnderTest, WAIT_TIMEOUT, WORKLOADS, by_hand};

/// Workloads of this many pods have their own share of each step.
const LARGE: usize = 20;

/// How often the status is read, far more often than any step lasts.
const READ_INTERVAL: Duration = Duration::from_millis(20);

/// Follows a rollout to its end: each step is as large as the spec says, and before another goes out, all pods of the
/// last have the version.
async fn follow_rollout(rollout: &RolloutUnderTest, version: &str) -> Result<()> {
    let began = Instant::now();
    let generation = rollout.request_version(version).await?;
    let all = rollout.members.len();
    let mut steps = vec![1, all.div_ceil(4), all.div_ceil(2), all];
    steps.dedup();
    let mut steps = steps.into_iter();
    let mut before: Vec<&Member> = Vec::new();
    loop {
        ensure!(began.elapsed() < WAIT_TIMEOUT, "{:#?}", rollout.status().await?);
        let status = rollout.status().await?;
        if status.observed_generation != Some(generation) {
            // It is still of what was before.
            tokio::time::sleep(READ_INTERVAL).await;
            continue;
        }
        if status.state() == ConfigState::Current && status.current_version.as_deref() == Some(version) {
            break;
        }
        ensure!(![ConfigState::Failed, ConfigState::RollingBack].contains(&status.state()), "{status:#?}");
        let now = rollout.assigned(&status);
        if now.len() == before.len() {
            tokio::time::sleep(READ_INTERVAL).await;
            continue;
        }
        for workload in WORKLOADS.map(|name| format!("Deployment/{name}")) {
            let of = |members: &[&Member]| members.iter().filter(|member| member.workload == workload).count();
            let size = rollout.members.iter().filter(|member| member.workload == workload).count();
            let share = (size * now.len()).div_ceil(all);
            ensure!(size < LARGE || of(&now) <= share, "{} of {size} of {workload} at {} pods", of(&now), now.len());
        }
        ensure!(steps.next() == Some(now.len()), "a step to {} of {all} pods: {status:#?}", now.len());
        for member in &before {
            ensure!(
                member.was_notified(version),
                "{} has not taken version {version}, and others have it assigned",
                member.name
            );
        }
        eprintln!("{:6} ms: {} of {} pods are assigned", began.elapsed().as_millis(), now.len(), rollout.members.len());
        before = now;
    }
    eprintln!("{:6} ms: version {version} is current", began.elapsed().as_millis());
    ensure!(steps.next().is_none() && before.len() == all, "{} pods", before.len());
    rollout.all_end_with(version).await
}

/// A version with which every application becomes unready.
async fn roll_out_failing(rollout: &RolloutUnderTest, good: &str, bad: &str) -> Result<()> {
    let began = Instant::now();
    let stamp = |what: &str| eprintln!("{:6} ms: {what}", began.elapsed().as_millis());
    rollout.request_version(bad).await?;
    let mut sick: Vec<&Member> = Vec::new();
    let mut unready = None;
    let mut assigned_back = None;
    let status = loop {
        ensure!(began.elapsed() < WAIT_TIMEOUT, "{:#?}", rollout.status().await?);
        let fall = rollout.members.iter().filter(|member| member.was_notified(bad));
        let fall: Vec<&Member> = fall.filter(|it| sick.iter().all(|sick| sick.uid != it.uid)).collect();
        for member in fall {
            rollout.make_ready(&member.name, false).await?;
            unready.get_or_insert_with(Instant::now);
            stamp(&format!("{} has version {bad} and is not Ready", member.name));
            sick.push(member);
        }
        let status = rollout.status().await?;
        if status.state() == ConfigState::RollingBack && assigned_back.is_none() {
            ensure!(rollout.assigned(&status).is_empty(), "{status:#?}");
            stamp("all are assigned the version before");
            assigned_back = Some(Instant::now());
        }
        if status.state() == ConfigState::Failed {
            assigned_back.get_or_insert_with(Instant::now);
            break status;
        }
        tokio::time::sleep(READ_INTERVAL).await;
    };
    stamp("Failed: all are back");
    let (unready, assigned_back) =
        (unready.context("none was unready")?, assigned_back.context("none was assigned back")?);
    eprintln!(
        "from the first unready to all assigned back: at most {} ms",
        assigned_back.saturating_duration_since(unready).as_millis()
    );
    let [only] = &sick[..] else { anyhow::bail!("{} pods were assigned the bad version", sick.len()) };
    rollout.all_end_with(good).await?;

    ensure!(status.current_version.as_deref() == Some(good) && status.target_version.is_none(), "{status:#?}");
    let failure = status.rollout.failure.context("no failure")?;
    ensure!((failure.version.as_str(), failure.reason.as_str()) == (bad, "PodNotReady"), "{failure:?}");
    let condition = |kind: &str| status.conditions.iter().find(|condition| condition.type_ == kind);
    let stalled = condition("Stalled").context("not Stalled")?;
    ensure!((stalled.status.as_str(), stalled.reason.as_str()) == ("True", "Failed"), "{stalled:?}");
    let description = format!("1 of 1 pod on {bad} became unready (first: {}, ", only.name);
    ensure!(stalled.message.contains(&description), "{stalled:?}");
    let others = format!("of {} on {good} none", rollout.members.len() - 1);
    ensure!(stalled.message.contains(&others), "{stalled:?}");
    ensure!(condition("Ready").is_some_and(|ready| ready.status == "False"), "{:?}", status.conditions);
    for reason in ["RollingBack", "Failed"] {
        let event = rollout.wait_for_event(reason).await?;
        ensure!(event.type_.as_deref() == Some("Warning"), "{event:?}");
    }
    let spec = rollout.space.api::<VersionedConfig>().get("shop").await?.spec;
    ensure!(spec.version.as_deref() == Some(bad), "spec.version is the user's: {:?}", spec.version);
    for member in sick {
        rollout.make_ready(&member.name, true).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_change_walks_step_by_step_and_a_bad_one_stops_at_the_first_pod() -> Result<()> {
    let Some((installation, replica)) = Installation::shared().await? else { return Ok(()) };
    let pods = by_hand("NUDGE_ROLLOUT_PODS", 40);
    let rollout = RolloutUnderTest::new(installation, replica.hub, pods, &["1", "25%", "50%"]).await?;
    follow_rollout(&rollout, "2").await?;
    roll_out_failing(&rollout, "2", "3").await?;
    follow_rollout(&rollout, "4").await
}
