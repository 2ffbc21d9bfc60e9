//! A Deployment that knows nothing of Nudge and takes its values from the environment is restarted with a new version,
//! and restarted back when it crashes with it. Its pods of before serve meanwhile. Beside it a config without objects:
//! its ConfigMap and the reader of that stay as they are.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt as _;
use kube::api::{ListParams, LogParams};
use nudge_api::{ConfigState, VersionedConfig};
use nudge_tests::cluster::installation::at_once;
use serde_json::json;
use time::OffsetDateTime;

use crate::objects::{config, deployment, list, plain, published_config, shell, template};
use crate::report::seconds;
use crate::space::{LONG_WAIT_TIMEOUT, ScenarioNamespace, assert_untouched, is_ready};
use crate::suite::Suite;
use nudge_tests::eventually;

const TITLE: &str = "Two pods with values from the environment, from spec.version";
const PODS: i32 = 2;
/// Until the Deployment's controller says that pods do not come up, in seconds: longer than one takes on a busy
/// machine.
const DEADLINE_SECONDS: i32 = 30;

const APP: &str = r#"[ "$MODE" != crash ] || exit 1; echo "mode=$MODE"; exec sleep 86400"#;

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let home = ScenarioNamespace::enabled(suite, "workload-restarts").await?;
    home.kubectl(&["apply", "-k", "deploy/namespace/restart"])?;
    let [one, two, crash] = ["one", "two", "crash"].map(|mode| json!({"MODE": mode}));
    home.apply(&list([plain("mode", &one)]))?;
    home.apply(&published_config("mode", &[("1", one), ("2", two), ("3", crash)], &at_once()))?;
    home.wait_until_current("mode", "1").await?;
    let mut container = shell(&home, APP);
    container["envFrom"] = json!([{"configMapRef": {"name": "mode"}}]);
    let mut environment = deployment(&template("environment", &container), PODS);
    // Time for a pod to crash before it counts as there.
    environment["spec"]["minReadySeconds"] = 5.into();
    environment["spec"]["progressDeadlineSeconds"] = DEADLINE_SECONDS.into();
    home.apply(&list([environment]))?;
    wait_for_pods(&home, "one").await?;

    home.activate("mode", "2").await?;
    let activated = OffsetDateTime::now_utc();
    home.wait_until_current("mode", "2").await?;
    let restarted = OffsetDateTime::now_utc();
    // Already: the version is current when they run it.
    let pods = home.space.api::<Pod>().list(&ListParams::default()).await?.items;
    let terminating = |pod: &&Pod| pod.metadata.deletion_timestamp.is_some();
    for pod in pods.iter().filter(|pod| !terminating(pod)) {
        ensure!(pod_log(&home, pod).await?.contains("mode=two"), "{} is of the version before", pod.name_any());
    }
    wait_for_pods(&home, "two").await?;

    home.activate("mode", "3").await?;
    let bad = OffsetDateTime::now_utc();
    let (configs, deployments) = (home.space.api::<VersionedConfig>(), home.space.api::<Deployment>());
    let status = eventually(LONG_WAIT_TIMEOUT, "the version has failed", async || {
        // Workloads that were healthy continue meanwhile.
        let available = deployments.get("environment").await.ok()?.status?.available_replicas.unwrap_or_default();
        if available < PODS {
            return Some(Err(anyhow!("only {available} pods are available")));
        }
        configs.get("mode").await.ok()?.status.filter(|status| status.state() == ConfigState::Failed).map(Ok)
    })
    .await??;
    let failed = OffsetDateTime::now_utc();
    let failure = status.rollout.failure.clone().context("status.rollout names no failure")?;
    ensure!(failure.version == "3" && failure.reason.as_str() == "RestartFailed", "{failure:?}");
    ensure!(failure.message.contains("Deployment/environment"), "{failure:?}");
    let (published, current) = (status.published_version.as_deref(), status.current_version.as_deref());
    ensure!(published == Some("2") && current == Some("2"), "{status:#?}");
    let map = home.space.api::<ConfigMap>().get("mode").await?;
    ensure!(map.data.iter().flatten().any(|(key, value)| key == "MODE" && value == "two"), "{map:?}");
    wait_for_pods(&home, "two").await?;
    test_config_without_objects(&home).await?;

    let row = |what: &str, from, to: OffsetDateTime| -> Result<()> {
        suite.report.row(TITLE, &[what.to_owned(), seconds(Duration::try_from(to - from)?)]);
        Ok(())
    };
    row("restarted one by one, the version is current", activated, restarted)?;
    row(
        &format!("a version that crashes: all are back (the Deployment's own deadline is {DEADLINE_SECONDS} s)"),
        bad,
        failed,
    )
}

/// A version of a config without objects becomes current; nothing else comes of it.
async fn test_config_without_objects(home: &ScenarioNamespace<'_>) -> Result<()> {
    let [one, two] = ["one", "two"].map(|mode| json!({"MODE": mode}));
    home.apply(&list([plain("quiet", &one)]))?;
    home.apply(&config("quiet", &[("1", one), ("2", two)], &at_once()))?;
    home.wait_until_current("quiet", "1").await?;
    let mut container = shell(home, APP);
    container["envFrom"] = json!([{"configMapRef": {"name": "quiet"}}]);
    home.apply(&list([deployment(&template("reader", &container), 1)]))?;
    let pod = home.ready_pod("app=reader").await?;
    let (maps, deployments) = (home.space.api::<ConfigMap>(), home.space.api::<Deployment>());
    let read = async || -> Result<_> {
        Ok((maps.get("quiet").await?.resource_version(), deployments.get("reader").await?.metadata.generation))
    };
    let before = read().await?;
    home.activate("quiet", "2").await?;
    home.wait_until_current("quiet", "2").await?;
    let status = home.space.api::<VersionedConfig>().get("quiet").await?.status.context("no status")?;
    ensure!(status.published_version.is_none(), "{status:#?}");
    let after = read().await?;
    ensure!(after == before, "the ConfigMap or the Deployment was written: {before:?}, {after:?}");
    assert_untouched(home, &pod).await
}

async fn pod_log(home: &ScenarioNamespace<'_>, pod: &Pod) -> Result<String> {
    Ok(home.space.api::<Pod>().logs(&pod.name_any(), &LogParams::default()).await?)
}

/// Waits until the Deployment's pods run with this and are available, and all others are terminating (which takes an
/// old kubelet a minute at times): Nudge waits for none that was not well before.
async fn wait_for_pods(home: &ScenarioNamespace<'_>, mode: &str) -> Result<()> {
    let (pods, deployments) = (home.space.api::<Pod>(), home.space.api::<Deployment>());
    let text = format!("mode={mode}");
    eventually(LONG_WAIT_TIMEOUT, &format!("all pods say {text}"), async || {
        let available = deployments.get("environment").await.ok()?.status?.available_replicas;
        let mut listed_pods = pods.list(&ListParams::default()).await.ok()?.items;
        listed_pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        if available != Some(PODS)
            || listed_pods.len() != usize::try_from(PODS).ok()?
            || !listed_pods.iter().all(is_ready)
        {
            return None;
        }
        for pod in &listed_pods {
            if !pod_log(home, pod).await.ok()?.contains(&text) {
                return None;
            }
        }
        Some(())
    })
    .await
}
