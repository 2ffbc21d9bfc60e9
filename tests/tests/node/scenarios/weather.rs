//! What befalls good versions: in the middle of rollouts, with everything at its default, pods are evicted, a
//! Deployment gets another template, one is scaled to more pods than can be scheduled, and one whose application takes
//! 40 s to start gets more pods. No version is rolled back, and none stops for longer than it must. The rollouts run at
//! the same time, since each takes minutes.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{EvictParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use nudge_api::{ConfigState, RolloutStage, VersionedConfig, VersionedConfigStatus};
use nudge_tests::cluster::assigned::assigned;
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::exposure::wait_for_status;
use super::rollout::APP;
use crate::objects::{config, deployment, list, opted_in, python};
use crate::report::seconds;
use crate::space::{LONG_WAIT_TIMEOUT, ScenarioNamespace, is_ready};
use crate::suite::Suite;
use nudge_tests::eventually;

const TITLE: &str = "Good versions in bad weather, everything at its default";
/// Pods of each Deployment.
const PODS: i32 = 4;
/// The number of pods that a workload is scaled to.
const SCALED: i32 = 8;
const SLOTS: i32 = 6;
/// What the pods of that one need, and nothing else has.
const SLOT: &str = "tests.nudge.dev/slot";
/// How long the slow one takes to start, in seconds.
const START_SECONDS: u32 = 40;
/// Three steps and the bake of 37 s to 60 s, twice over: a version that is held is not current by then.
const HOLD_CHECK_DURATION: Duration = Duration::from_mins(9);

const NAMES: [&str; 4] = ["evicted", "replaced", "scaled", "slow"];

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let home = ScenarioNamespace::enabled(suite, "weather").await?;
    let good = |name: &str| json!({"name": name, "healthy": "yes"});
    slots(&home).await?;
    for name in NAMES {
        home.apply(&config(name, &[("1", good("one")), ("2", good("two"))], &json!({})))?;
        home.apply(&list([workload(&home, name)]))?;
    }
    for name in NAMES {
        all_ready(&home, name, PODS).await?;
        home.wait_until_current(name, "1").await?;
    }
    let activated = OffsetDateTime::now_utc();
    for name in NAMES {
        home.activate(name, "2").await?;
    }
    // Some have it, and some do not.
    for name in NAMES {
        let middle = |status: &VersionedConfigStatus| {
            status.rollout.stage == Some(RolloutStage::Moving) && status.rollout.step > 0 && status.pods.on_target > 0
        };
        wait_for_status(&home, name, "the first step has gone out", middle).await?;
    }
    home.kubectl(&["scale", "deployment", "scaled", &format!("--replicas={SCALED}")])?;
    home.kubectl(&["scale", "deployment", "slow", &format!("--replicas={}", PODS + 2)])?;
    home.kubectl(&["patch", "deployment", "replaced", "-p", &other_template()])?;
    // The weather comes while versions move; how long it lasts is up to the machine.
    for name in NAMES {
        let status = home.space.api::<VersionedConfig>().get(name).await?.status.context("no status")?;
        ensure!(status.rollout.stage == Some(RolloutStage::Moving), "{name} was over before: {status:#?}");
    }
    evict(&home).await?;
    waits_for_slots(&home).await?;

    try_join_all(NAMES.map(async |name| {
        ends_well(&home, name).await.with_context(|| name.to_owned())?;
        let after = Duration::try_from(OffsetDateTime::now_utc() - activated)?;
        suite.report.row(TITLE, &[name.to_owned(), seconds(after)]);
        Ok::<_, anyhow::Error>(())
    }))
    .await?;
    for name in NAMES {
        let count = match name {
            "scaled" => SLOTS,
            "slow" => PODS + 2,
            _ => PODS,
        };
        all_ready(&home, name, count).await?;
    }
    let events = home.space.api::<Event>().list(&ListParams::default()).await?.items;
    let bad = |event: &&Event| ["RollingBack", "Failed", "Suspect"].contains(&event.reason.as_deref().unwrap_or(""));
    let bad: Vec<_> = events
        .iter()
        .filter(bad)
        .filter(|event| event.involved_object.kind.as_deref() == Some("VersionedConfig"))
        .collect();
    ensure!(bad.is_empty(), "{bad:#?}");
    Ok(())
}

/// Returns a Deployment with a probe of default timing.
fn workload(home: &ScenarioNamespace<'_>, name: &str) -> Value {
    let mut container = python(home, APP);
    let probe = json!({"httpGet": {"path": "/healthy", "port": 8080}});
    container["readinessProbe"] = probe.clone();
    match name {
        "scaled" => container["resources"] = json!({"limits": {SLOT: "1"}}),
        "slow" => {
            container["command"][2] = format!("import time\ntime.sleep({START_SECONDS})\n{APP}").into();
            container["startupProbe"] = probe;
            container["startupProbe"]["failureThreshold"] = 30.into();
        }
        _ => {}
    }
    let annotations = [("configs", name), ("notify", "SIGUSR1"), ("mount-path", "/config")];
    deployment(&opted_in(name, &container, &annotations), PODS)
}

/// Returns what a roll-out of another image is to Kubernetes: another template.
fn other_template() -> String {
    let container = json!({"name": "app", "env": [{"name": "RELEASE", "value": "2"}]});
    json!({"spec": {"template": {"spec": {"containers": [container]}}}}).to_string()
}

/// Gives the node this many slots.
async fn slots(home: &ScenarioNamespace<'_>) -> Result<()> {
    let nodes: Api<Node> = Api::all(home.space.client.clone());
    let name = nodes.list(&ListParams::default()).await?.items.first().context("no node")?.name_any();
    let slots = json!({SLOT: SLOTS.to_string()});
    let patch = Patch::Merge(json!({"status": {"capacity": slots, "allocatable": slots}}));
    nodes.patch_status(&name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Returns all pods of this label that are not terminating.
async fn pods(home: &ScenarioNamespace<'_>, app: &str) -> Result<Vec<Pod>> {
    let mut listed_pods =
        home.space.api::<Pod>().list(&ListParams::default().labels(&format!("app={app}"))).await?.items;
    listed_pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
    Ok(listed_pods)
}

/// Waits until this many pods of this label are Ready, and all others can't be scheduled.
async fn all_ready(home: &ScenarioNamespace<'_>, app: &str, count: i32) -> Result<()> {
    eventually(LONG_WAIT_TIMEOUT, &format!("{count} pods of {app} are Ready"), async || {
        let (ready, others): (Vec<_>, Vec<_>) = pods(home, app).await.ok()?.into_iter().partition(is_ready);
        let placed = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        (i32::try_from(ready.len()).ok()? == count && !others.iter().any(placed)).then_some(())
    })
    .await
}

/// Waits until some pods can't be scheduled.
async fn waits_for_slots(home: &ScenarioNamespace<'_>) -> Result<()> {
    eventually(LONG_WAIT_TIMEOUT, "some pods wait for slots", async || {
        let pending = |pod: &&Pod| {
            let conditions = pod.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
            conditions.into_iter().any(|condition| condition.reason.as_deref() == Some("Unschedulable"))
        };
        let count = pods(home, "scaled").await.ok()?.iter().filter(pending).count();
        (i32::try_from(count).ok()? == SCALED - SLOTS).then_some(())
    })
    .await
}

/// Evicts the pods of one Deployment, as draining the node does it, which others need.
async fn evict(home: &ScenarioNamespace<'_>) -> Result<()> {
    let (api, before) = (home.space.api::<Pod>(), pods(home, "evicted").await?);
    for pod in &before {
        api.evict(&pod.name_any(), &EvictParams::default()).await.with_context(|| pod.name_any())?;
    }
    let now = pods(home, "evicted").await?;
    ensure!(now.iter().all(|pod| before.iter().all(|old| old.uid() != pod.uid())), "a pod was not evicted");
    Ok(())
}

/// Waits until version 2 is current, which nothing has stopped, and every pod that runs has it.
async fn ends_well(home: &ScenarioNamespace<'_>, name: &str) -> Result<()> {
    let configs = home.space.api::<VersionedConfig>();
    let config = eventually(HOLD_CHECK_DURATION, "version 2 is current, or rolls back", async || {
        let config = configs.get(name).await.ok()?;
        let status = config.status.as_ref()?;
        let ended = matches!(status.state(), ConfigState::Current | ConfigState::Failed | ConfigState::RollingBack);
        ended.then_some(config)
    })
    .await?;
    let status = config.status.as_ref().context("no status")?;
    let current = (status.state(), status.current_version.as_deref()) == (ConfigState::Current, Some("2"));
    ensure!(current && status.rollout.failure.is_none(), "{status:#?}");
    let uid = config.uid().context("no uid")?;
    for pod in pods(home, name).await? {
        let workload = format!("Deployment/{name}");
        let version = assigned(status, &uid, &pod.uid().context("no uid")?, &workload, pod.labels());
        ensure!(version == Some("2"), "{} is assigned {version:?}", pod.name_any());
    }
    Ok(())
}
