//! When a restart counts as come up, and when as failed: a StatefulSet that takes longer than the deadline in total,
//! because its pods start one after another and each takes its time; and a Deployment without any probe whose
//! containers start, and crash two seconds later.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{ListParams, LogParams};
use nudge_api::{ConfigState, VersionedConfig};
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::objects::{deployment, list, plain, published_config, shell, template};
use crate::report::seconds;
use crate::space::{LONG_WAIT_TIMEOUT, ScenarioNamespace};
use crate::suite::Suite;
use nudge_tests::eventually;

const TITLE: &str = "Restarts of workloads without an agent, from spec.version";
const PODS: i32 = 3;
/// The deadline, in seconds: longer than an old kubelet takes to end a pod, which is more than a minute at times.
const DEADLINE_SECONDS: u64 = 100;
/// How long each pod of the StatefulSet takes to become Ready, in seconds: together longer than the deadline.
const START_SECONDS: u64 = 35;

const CRASHES_LATER: &str = r#"[ "$SPEED" != crash ] || { sleep 2; exit 1; }; echo "speed=$SPEED"; exec sleep 86400"#;

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let home = ScenarioNamespace::enabled(suite, "long-restarts").await?;
    home.kubectl(&["apply", "-k", "deploy/namespace/restart"])?;
    tokio::try_join!(slow(suite, &home), test_crash(suite, &home)).map(drop)
}

fn rollout(min_ready: u32, deadline: u64) -> Value {
    json!({"steps": [{"pods": "100%"}], "minReadySeconds": min_ready, "bakeSeconds": 0, "progressDeadlineSeconds": deadline})
}

async fn slow(suite: &Suite, home: &ScenarioNamespace<'_>) -> Result<()> {
    let [one, two] = ["one", "two"].map(|mode| json!({"MODE": mode}));
    home.apply(&list([plain("mode", &one)]))?;
    home.apply(&published_config("mode", &[("1", one), ("2", two)], &rollout(0, DEADLINE_SECONDS)))?;
    home.wait_until_current("mode", "1").await?;
    let mut container =
        shell(home, &format!(r#"echo "mode=$MODE"; sleep {START_SECONDS}; touch /tmp/up; exec sleep 86400"#));
    container["envFrom"] = json!([{"configMapRef": {"name": "mode"}}]);
    container["readinessProbe"] = json!({"exec": {"command": ["test", "-f", "/tmp/up"]}, "periodSeconds": 1});
    // Together at first, one after another in a rolling update.
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "slow"},
        "spec": {"replicas": PODS, "serviceName": "slow", "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "slow"}}, "template": template("slow", &container)},
    });
    home.apply(&set.to_string())?;
    let sets = home.space.api::<StatefulSet>();
    eventually(LONG_WAIT_TIMEOUT, "all pods are Ready", async || {
        (sets.get("slow").await.ok()?.status?.ready_replicas == Some(PODS)).then_some(())
    })
    .await?;
    home.activate("mode", "2").await?;
    let activated = OffsetDateTime::now_utc();
    let configs = home.space.api::<VersionedConfig>();
    eventually(2 * LONG_WAIT_TIMEOUT, "version 2 is current", async || {
        let status = configs.get("mode").await.ok()?.status?;
        (status.current_version.as_deref() == Some("2") && status.rollout.stage.is_none()).then_some(())
    })
    .await?;
    let elapsed = Duration::try_from(OffsetDateTime::now_utc() - activated)?;
    ensure!(elapsed.as_secs() > DEADLINE_SECONDS, "it took {elapsed:?}, which shows nothing");
    let pods = home.space.api::<Pod>();
    for pod in pods.list(&ListParams::default().labels("app=slow")).await?.items {
        let log = pods.logs(&pod.name_any(), &LogParams::default()).await?;
        ensure!(log.contains("mode=two"), "{} is of the version before", pod.name_any());
    }
    let description = format!(
        "a StatefulSet of {PODS} that take {START_SECONDS} s each, with a deadline of {DEADLINE_SECONDS} s: current"
    );
    suite.report.row(TITLE, &[description, seconds(elapsed)]);
    Ok(())
}

async fn test_crash(suite: &Suite, home: &ScenarioNamespace<'_>) -> Result<()> {
    let [one, crash] = ["one", "crash"].map(|speed| json!({"SPEED": speed}));
    home.apply(&list([plain("speed", &one)]))?;
    home.apply(&published_config("speed", &[("1", one), ("2", crash)], &rollout(10, 600)))?;
    home.wait_until_current("speed", "1").await?;
    let mut container = shell(home, CRASHES_LATER);
    container["envFrom"] = json!([{"configMapRef": {"name": "speed"}}]);
    home.apply(&deployment(&template("unprobed", &container), PODS).to_string())?;
    let deployments = home.space.api::<Deployment>();
    let available = async || {
        let status = deployments.get("unprobed").await.ok()?.status?;
        (status.available_replicas == Some(PODS) && status.replicas == Some(PODS)).then_some(())
    };
    eventually(LONG_WAIT_TIMEOUT, "all pods are available", available).await?;
    home.activate("speed", "2").await?;
    let activated = OffsetDateTime::now_utc();
    let configs = home.space.api::<VersionedConfig>();
    let status = eventually(LONG_WAIT_TIMEOUT, "the version has failed", async || {
        configs.get("speed").await.ok()?.status.filter(|status| status.state() == ConfigState::Failed)
    })
    .await?;
    let elapsed = Duration::try_from(OffsetDateTime::now_utc() - activated)?;
    let failure = status.rollout.failure.clone().context("status.rollout names no failure")?;
    ensure!(failure.version == "2" && failure.reason.as_str() == "RestartFailed", "{failure:?}");
    let (published, current) = (status.published_version.as_deref(), status.current_version.as_deref());
    ensure!(published == Some("1") && current == Some("1"), "{status:#?}");
    eventually(LONG_WAIT_TIMEOUT, "all pods are available with the version before", available).await?;
    let what = "a Deployment without a probe that crashes 2 s after each start: all are back".to_owned();
    suite.report.row(TITLE, &[what, seconds(elapsed)]);
    Ok(())
}
