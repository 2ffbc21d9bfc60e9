//! The reach of a bad version, and the effect of a brake, with all settings at their defaults.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::TryStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use nudge_api::{ConfigState, RolloutStage, VersionedConfig, VersionedConfigStatus};
use nudge_tests::cluster::installation::overridden;
use nudge_tests::{Installation, eventually};
use serde_json::{Value, json};

use super::rollout_under_test::{RolloutUnderTest, WAIT_TIMEOUT, steps_of};

const PODS: usize = 8;
/// A default probe fails three times, so it notices nothing sooner than 20 s after it began. What it notices sooner had
/// begun before.
const MIN_NOTICE_DELAY: Duration = Duration::from_secs(21);

/// Has all pods run the version at once, and it is current as soon as they are watched.
async fn now(rollout: &RolloutUnderTest, version: &str) -> Result<()> {
    let now = overridden(version, "it can't wait");
    rollout.set(json!({"rollout": {"override": now, "bakeSeconds": 0}})).await?;
    rollout.request_version(version).await?;
    rollout.wait_until_current(version).await?;
    rollout.set(json!({"rollout": null})).await?;
    Ok(())
}

#[tokio::test]
async fn all_pods_return_out_of_a_crash_loop_in_one_write() -> Result<()> {
    let Some((installation, replica)) = Installation::shared().await? else { return Ok(()) };
    let rollout = RolloutUnderTest::with_defaults(installation, replica.hub, PODS).await?;
    now(&rollout, "2").await?;
    for member in &rollout.members {
        for _ in 0..3 {
            rollout.crash(&member.name, false).await?;
        }
    }
    let only = watcher::Config::default().fields("metadata.name=shop");
    let mut seen = Box::pin(watcher(rollout.space.api::<VersionedConfig>(), only));
    rollout.request_version("1").await?;
    let followed = async {
        loop {
            let (Event::Apply(config) | Event::InitApply(config)) = seen.try_next().await?.context("no more")? else {
                continue;
            };
            let status = config.status.unwrap_or_default();
            let versions: BTreeSet<_> =
                rollout.members.iter().filter_map(|member| rollout.version_of(&status, member)).collect();
            ensure!(versions.len() == 1, "pods are divided: {status:#?}");
            if status.state() == ConfigState::Current && status.current_version.as_deref() == Some("1") {
                return Ok::<_, anyhow::Error>(());
            }
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, followed).await.context("it is not current again")??;
    // They crash all along.
    rollout.all_end_with("1").await
}

#[tokio::test]
async fn all_pods_get_a_version_at_once_where_the_spec_says_now() -> Result<()> {
    let Some((installation, replica)) = Installation::shared().await? else { return Ok(()) };
    let rollout = RolloutUnderTest::with_defaults(installation, replica.hub, PODS).await?;
    // What is said of another version does not count.
    rollout.set(json!({"rollout": {"override": overridden("3", "it can't wait")}})).await?;
    rollout.request_version("2").await?;
    let status = rollout.step_runs("2").await?;
    let first = rollout.assigned(&status);
    ensure!(first.len() == 1, "{status:#?}");
    let fresh = rollout.members.iter().find(|member| member.name != first[0].name).context("one pod only")?;
    // In the middle of a step, and although the config is on hold.
    let now = overridden("2", "it can't wait");
    rollout.set(json!({"rollout": {"hold": {"reason": "audit"}}})).await?;
    rollout.set(json!({"rollout": {"override": now}})).await?;
    let more = |status: &VersionedConfigStatus| rollout.assigned(status).len() > 1;
    let status = rollout.wait_for_status("more pods have it", more).await?;
    ensure!(rollout.assigned(&status).len() == PODS, "{status:#?}");
    for member in &rollout.members {
        eventually(WAIT_TIMEOUT, "all are notified", async || member.was_notified("2").then_some(())).await?;
    }
    // It is watched all the same: pods that get worse have all return at once.
    rollout
        .wait_for_status("it is watched", |status| {
            status.rollout.evidence.as_ref().is_some_and(|known| known.assigned == 8) && status.pods.on_target == 8
        })
        .await?;
    // A pod that had the version before the others could have been harmed by what came before it.
    rollout.crash(&fresh.name, true).await?;
    let back = |status: &VersionedConfigStatus| status.rollout.failure.is_some();
    let status = rollout.wait_for_status("it rolls back", back).await?;
    ensure!(rollout.assigned(&status).is_empty(), "{status:#?}");
    rollout.all_end_with("1").await
}

/// Another config with a version 1, which is current, and others.
async fn other(installation: &Installation<'_>) -> Result<nudge_tests::cluster::TestNamespace> {
    let space = installation.enabled("neighbours").await?;
    for version in ["1", "2", "3"] {
        let labels = json!({"nudge.dev/config": "other", "nudge.dev/version": version});
        let meta = json!({"name": format!("other-{version}"), "labels": labels});
        let part = json!({"metadata": meta, "immutable": true, "data": {"other": version}});
        nudge_tests::cluster::installation::create_part::<k8s_openapi::api::core::v1::ConfigMap>(&space, part).await?;
    }
    let spec = json!({"version": "1", "rollout": {"steps": steps_of(&["1"]), "minReadySeconds": 1, "bakeSeconds": 0}});
    space.create_object::<VersionedConfig>(json!({"metadata": {"name": "other"}, "spec": spec})).await?;
    Ok(space)
}

#[tokio::test]
async fn a_config_that_is_on_hold_or_has_failed_lets_another_pass() -> Result<()> {
    let Some((installation, replica)) = Installation::shared().await? else { return Ok(()) };
    let settings = json!({
        "steps": steps_of(&["1"]), "minReadySeconds": 3600, "bakeSeconds": 0, "onFailure": "Hold",
    });
    let space = other(installation).await?;
    let rollout = RolloutUnderTest::of(space, replica.hub, 4, ("shop,other", &settings, &Value::Null)).await?;
    let waits = |status: &VersionedConfigStatus| {
        status.state() == ConfigState::Waiting
            && status.conditions.iter().any(|condition| condition.reason == "WaitingFor")
    };
    let passed = |version: &'static str| {
        move |status: &VersionedConfigStatus| {
            status.state() == ConfigState::Current && status.current_version.as_deref() == Some(version)
        }
    };
    rollout.request_version("2").await?;
    rollout.step_runs("2").await?;
    rollout.set_of("other", json!({"version": "2"})).await?;
    rollout.stands_of("other", "the other waits", waits).await?;
    // Once its step is watched, nothing but the hold keeps it.
    rollout.set(json!({"rollout": {"hold": {"reason": "audit"}, "minReadySeconds": 1}})).await?;
    rollout.stands_of("other", "the other passes one that is on hold", passed("2")).await?;
    let on_hold = |status: &VersionedConfigStatus| {
        status.internal.yields && status.conditions.iter().any(|condition| condition.reason == "OnHold")
    };
    let status = rollout.wait_for_status("it is on hold", on_hold).await?;
    ensure!(rollout.assigned(&status).len() == 1, "{status:#?}");
    rollout.set(json!({"rollout": {"hold": null}})).await?;
    rollout.wait_until_current("2").await?;

    rollout.request_version("3").await?;
    let status = rollout.first_step("3").await?;
    let sick = rollout.assigned(&status)[0];
    eventually(WAIT_TIMEOUT, "it is notified", async || sick.was_notified("3").then_some(())).await?;
    rollout.make_ready(&sick.name, false).await?;
    let failed = |status: &VersionedConfigStatus| status.rollout.failure.is_some() && status.internal.yields;
    let status = rollout.wait_for_status("it has failed and stands still", failed).await?;
    ensure!(status.rollout.stage == Some(RolloutStage::Moving) && rollout.assigned(&status).len() == 1, "{status:#?}");
    rollout.set_of("other", json!({"version": "3"})).await?;
    rollout.stands_of("other", "the other passes one that stands still", passed("3")).await?;
    rollout.request_version("2").await?;
    rollout.wait_until_current("2").await?;
    rollout.all_end_with("2").await
}

#[tokio::test]
async fn steps_that_change_in_the_middle_hold_from_the_next_one_on() -> Result<()> {
    let Some((installation, replica)) = Installation::shared().await? else { return Ok(()) };
    let rollout = RolloutUnderTest::new(installation, replica.hub, 8, &["1"]).await?;
    rollout.set(json!({"rollout": {"minReadySeconds": 3600}})).await?;
    rollout.request_version("2").await?;
    let status = rollout.step_runs("2").await?;
    let first: BTreeSet<&str> = rollout.assigned(&status).iter().map(|member| &*member.name).collect();
    ensure!(first.len() == 1, "{first:?}");
    // The second step is now about the pods of one Deployment, and holds.
    let selector = json!({"matchLabels": {"app": "api"}});
    let steps = json!([{"pods": 1}, {"pods": "100%", "selector": selector, "pauseSeconds": 3600}]);
    rollout.set(json!({"rollout": {"steps": steps, "minReadySeconds": 1}})).await?;
    let more = |status: &VersionedConfigStatus| rollout.assigned(status).len() > 1;
    rollout.wait_for_status("the next step is assigned", more).await?;
    let status = rollout.step_runs("2").await?;
    let holds = |status: &VersionedConfigStatus| {
        status.conditions.iter().any(|condition| condition.message.contains("pauses for 3600 s"))
    };
    rollout.wait_for_status("it holds", holds).await?;
    for member in &rollout.members {
        let is = rollout.assigned(&status).iter().any(|other| other.uid == member.uid);
        let should = member.workload == "Deployment/api" || first.contains(&*member.name);
        ensure!(is == should, "{}: {is}, {status:#?}", member.name);
    }
    rollout.set(json!({"rollout": {"steps": steps_of(&["1"])}})).await?;
    rollout.wait_until_current("2").await?;
    for member in &rollout.members {
        ensure!(member.notified_versions() == ["2"], "{}: {:?}", member.name, member.notified_versions());
    }
    Ok(())
}

/// As after a drain of all nodes: the pods wait for a place.
#[tokio::test]
async fn a_version_that_no_pod_can_judge_any_more_waits_for_one_that_can() -> Result<()> {
    let Some((installation, replica)) = Installation::shared().await? else { return Ok(()) };
    let rollout = RolloutUnderTest::new(installation, replica.hub, 4, &["1"]).await?;
    rollout.set(json!({"rollout": {"minReadySeconds": 3600}})).await?;
    rollout.request_version("2").await?;
    rollout.step_runs("2").await?;
    for member in &rollout.members {
        rollout.make_ready(&member.name, false).await?;
        rollout.patch_pod(&member.name, &json!({"phase": "Pending"})).await?;
    }
    let generation = rollout.set(json!({"rollout": {"minReadySeconds": 1}})).await?;
    rollout.wait_for_status("the spec is seen", |status| status.observed_generation == Some(generation)).await?;
    tokio::time::sleep(MIN_NOTICE_DELAY).await; // the time is what is tried, nothing is waited for
    let status = rollout.status().await?;
    ensure!(status.current_version.as_deref() == Some("1"), "no pod could be asked: {status:#?}");
    for member in &rollout.members {
        rollout.patch_pod(&member.name, &json!({"phase": "Running"})).await?;
        rollout.make_ready(&member.name, true).await?;
    }
    rollout.wait_until_current("2").await?;
    rollout.all_end_with("2").await
}
