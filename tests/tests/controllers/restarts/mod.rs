//! Workloads that use the published ConfigMap without an agent: restarted one after another with the published version,
//! by their real controllers; this test takes the place of the kubelet that runs their pods.

mod by_restart;
mod by_user;
mod progress;
mod published_secret;
mod read_keys;
mod with_live_agent;
mod write_back;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use nudge_api::{ConfigState, VersionedConfig, VersionedConfigStatus};
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::{at_once, bind, create_part};
use nudge_tests::{Installation, Replica, eventually, tools};
use serde_json::{Value, json};

use crate::kubelet::Kubelet;

const WAIT_TIMEOUT: Duration = Duration::from_mins(1);
const DIGEST: &str = "nudge.dev/config-digest";

/// Returns the shared control plane. `None` if there are no controllers of workloads, and the test is to be skipped.
async fn installation() -> Result<Option<&'static (Installation<'static>, Replica)>> {
    let Some(shared) = Installation::shared().await? else { return Ok(None) };
    if !shared.0.cluster.controls("deployment") {
        tools::skipped("restarting workloads needs kube-controller-manager");
        return Ok(None);
    }
    Ok(Some(shared))
}

/// Returns a namespace with a ConfigMap `shop` that is kept at the current version, which is 1.
async fn shop(installation: &Installation<'_>, purpose: &str, spec: Value) -> Result<TestNamespace> {
    let space = installation.enabled(purpose).await?;
    space.create_object::<ConfigMap>(json!({"metadata": {"name": "shop"}, "data": {"key": "0"}})).await?;
    version(&space, "1").await?;
    let mut all = json!({"version": "1", "objects": ["ConfigMap"], "rollout": {
        "steps": [{"pods": "100%"}], "minReadySeconds": 0, "bakeSeconds": 0, "progressDeadlineSeconds": 120}});
    for (key, value) in spec.as_object().context("an object")? {
        all[key] = value.clone();
    }
    space.create_object::<VersionedConfig>(json!({"metadata": {"name": "shop"}, "spec": all})).await?;
    wait_for_status(&space, "version 1 is published", |status| {
        status.published_version.as_deref() == Some("1") && status.rollout.stage.is_none()
    })
    .await?;
    Ok(space)
}

async fn version(space: &TestNamespace, version: &str) -> Result<()> {
    let object = json!({
        "metadata": {"name": format!("shop-{version}"), "labels": {"nudge.dev/config": "shop", "nudge.dev/version": version}},
        "immutable": true, "data": {"key": version},
    });
    create_part::<ConfigMap>(space, object).await?;
    Ok(())
}

/// Makes a version and requests it.
async fn create_and_request(space: &TestNamespace, name: &str) -> Result<()> {
    version(space, name).await?;
    let patch = json!({"spec": {"version": name}});
    space.api::<VersionedConfig>().patch("shop", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    Ok(())
}

async fn wait_for_status(
    space: &TestNamespace,
    what: &str,
    is: impl Fn(&VersionedConfigStatus) -> bool,
) -> Result<VersionedConfigStatus> {
    let configs = space.api::<VersionedConfig>();
    let find = async || configs.get("shop").await.ok()?.status.filter(&is);
    let waited = eventually(WAIT_TIMEOUT, what, find).await;
    match waited {
        Ok(status) => Ok(status),
        Err(error) => Err(error.context(format!("{:#?}", configs.get("shop").await?.status))),
    }
}

async fn wait_until_current(space: &TestNamespace, version: &str) -> Result<VersionedConfigStatus> {
    wait_for_status(space, &format!("version {version} is current"), |status| {
        status.current_version.as_deref() == Some(version) && status.rollout.stage.is_none()
    })
    .await
}

fn restarted_condition(status: &VersionedConfigStatus) -> Option<(&str, &str, &str)> {
    let condition = status.conditions.iter().find(|condition| condition.type_ == "Restarted")?;
    Some((&condition.status, &condition.reason, &condition.message))
}

/// Returns a template whose pods read the ConfigMap from the environment.
fn template(app: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": {
        "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "app", "image": "test", "env": [
            {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "shop", "key": "key"}}}]}],
    }})
}

async fn deployment(space: &TestNamespace, name: &str, more: Value) -> Result<()> {
    let mut spec = json!({"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": template(name)});
    for (key, value) in more.as_object().context("an object")? {
        spec[key] = value.clone();
    }
    space.create_object::<Deployment>(json!({"metadata": {"name": name}, "spec": spec})).await?;
    Ok(())
}

async fn digest(space: &TestNamespace, name: &str) -> Result<Option<String>> {
    let template = space.api::<Deployment>().get(name).await?.spec.context("a spec")?.template;
    Ok(template.metadata.and_then(|meta| meta.annotations?.remove(DIGEST)))
}

async fn wait_until_available(space: &TestNamespace, names: &[&str]) -> Result<()> {
    for name in names {
        eventually(WAIT_TIMEOUT, &format!("{name} is available"), async || {
            let status = space.api::<Deployment>().get(name).await.ok()?.status?;
            (status.available_replicas == Some(2)).then_some(())
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_deployment_that_reads_the_environment_is_restarted_and_restarted_back_when_it_fails() -> Result<()> {
    let Some((installation, replica)) = installation().await? else { return Ok(()) };
    let space = shop(installation, "restart", json!({})).await?;
    bind(&space, "nudge-restart").await?;
    for name in ["api", "web"] {
        deployment(&space, name, json!({"progressDeadlineSeconds": 8})).await?;
    }
    let good = std::sync::Arc::new(std::sync::Mutex::new(None::<String>));
    let known = std::sync::Arc::clone(&good);
    let kubelet = Kubelet::start(&space, move |pod| match &*known.lock().unwrap() {
        // Pods of the later version never become Ready.
        Some(good) => pod.annotations().get(DIGEST) == Some(good),
        None => true,
    });
    wait_until_available(&space, &["api", "web"]).await?;

    create_and_request(&space, "2").await?;
    let status = wait_until_current(&space, "2").await?;
    ensure!(
        restarted_condition(&status).is_some_and(|(status, reason, _)| (status, reason) == ("True", "Restarted")),
        "{status:#?}"
    );
    let first = digest(&space, "web").await?.context("web was not restarted")?;
    ensure!(digest(&space, "api").await?.as_ref() == Some(&first), "the same content is the same template");
    wait_until_available(&space, &["api", "web"]).await?;
    // One after the other: the second was requested after the first was there.
    let ask = async |name: &str| -> Result<String> {
        let object = space.api::<Deployment>().get(name).await?;
        Ok(object.annotations().get("nudge.dev/restarted").cloned().unwrap_or_default())
    };
    let new_pods = space.api::<Pod>().list(&ListParams::default().labels("app=api")).await?.items;
    ensure!(new_pods.len() == 2 && new_pods.iter().all(|pod| pod.annotations().get(DIGEST) == Some(&first)));
    let ready = new_pods.iter().filter_map(|pod| pod.metadata.creation_timestamp.clone()).max().context("pods")?;
    ensure!(ask("web").await?.split(' ').next().unwrap_or_default() >= &ready.0.to_string()[..19], "together");

    *good.lock().unwrap() = Some(first.clone());
    create_and_request(&space, "3").await?;
    let status = wait_for_status(&space, "version 3 failed", |status| status.state() == ConfigState::Failed).await?;
    let failure = status.rollout.failure.context("no failure")?;
    ensure!((failure.version.as_str(), failure.reason.as_str()) == ("3", "RestartFailed"), "{failure:?}");
    ensure!(failure.message.contains("Deployment/api"), "{}", failure.message);
    ensure!((status.current_version.as_deref(), status.published_version.as_deref()) == (Some("2"), Some("2")));
    let plain = space.api::<ConfigMap>().get("shop").await?.data.context("data")?;
    ensure!(plain["key"] == "2");
    for name in ["api", "web"] {
        ensure!(digest(&space, name).await?.as_ref() == Some(&first), "{name} was not restarted back");
    }
    ensure!(ask("web").await?.contains(&first), "web was never restarted with the version that failed");
    drop(kubelet);
    ensure!(replica.metric("nudge_restarted_workloads_total").await? >= 4.0);
    ensure!(replica.metric("nudge_rollouts_total").await? >= 2.0);
    ensure!(replica.metric("nudge_rollout_duration_seconds_count").await? >= 2.0);
    Ok(())
}

#[tokio::test]
async fn stateful_sets_and_daemon_sets_are_restarted_too() -> Result<()> {
    let Some((installation, _)) = installation().await? else { return Ok(()) };
    let space = shop(installation, "sets", json!({})).await?;
    bind(&space, "nudge-restart").await?;
    let nodes: Api<Node> = Api::all(space.client.clone());
    nodes.create(&PostParams::default(), &serde_json::from_value(json!({"metadata": {"name": space.name}}))?).await?;
    // The API server has marked it as not ready, which keeps pods away.
    let taken = Patch::Merge(json!({"spec": {"taints": null}}));
    nodes.patch(&space.name, &PatchParams::default(), &taken).await?;
    let spec = |app: &str, more: &str, value: Value| {
        let mut spec = json!({"selector": {"matchLabels": {"app": app}}, "template": template(app)});
        spec[more] = value;
        json!({"metadata": {"name": app}, "spec": spec})
    };
    let mut set = spec("db", "serviceName", "db".into());
    set["spec"]["replicas"] = 2.into();
    space.create_object::<StatefulSet>(set).await?;
    space.create_object::<DaemonSet>(spec("log", "minReadySeconds", 0.into())).await?;
    let _kubelet = Kubelet::start(&space, |_| true);
    let pods = async |digest: Option<&str>| {
        eventually(WAIT_TIMEOUT, &format!("three pods of {digest:?} are Ready"), async || {
            let sets = space.api::<StatefulSet>().get("db").await.ok()?.status?.ready_replicas == Some(2);
            let logs = space.api::<DaemonSet>().get("log").await.ok()?.status?.number_ready == 1;
            let pods = space.api::<Pod>().list(&ListParams::default()).await.ok()?.items;
            let all = pods.iter().all(|pod| pod.annotations().get(DIGEST).map(String::as_str) == digest);
            (sets && logs && all && pods.len() == 3).then_some(())
        })
        .await
    };
    pods(None).await?;
    create_and_request(&space, "2").await?;
    let status = wait_until_current(&space, "2").await?;
    let (state, reason, message) = restarted_condition(&status).context("no condition Restarted")?;
    ensure!((state, reason) == ("True", "Restarted"), "{message}");
    let template = space.api::<StatefulSet>().get("db").await?.spec.context("a spec")?.template;
    let digest = template.metadata.and_then(|meta| meta.annotations?.remove(DIGEST));
    ensure!(digest.is_some(), "the StatefulSet was not restarted");
    pods(digest.as_deref()).await
}

#[tokio::test]
async fn what_does_not_follow_its_template_is_reported_and_not_waited_for() -> Result<()> {
    let Some((installation, _)) = installation().await? else { return Ok(()) };
    let space = shop(installation, "held", json!({})).await?;
    bind(&space, "nudge-restart").await?;
    deployment(&space, "web", json!({"paused": true})).await?;
    let spec = |app: &str, more: &str, value: Value| {
        let mut spec = json!({"selector": {"matchLabels": {"app": app}}, "template": template(app), "updateStrategy": {"type": "OnDelete"}});
        spec[more] = value;
        json!({"metadata": {"name": app}, "spec": spec})
    };
    space.create_object::<StatefulSet>(spec("db", "serviceName", "db".into())).await?;
    space.create_object::<DaemonSet>(spec("log", "minReadySeconds", 0.into())).await?;
    // Marked as one that restarts by itself.
    let mut own = template("own");
    own["metadata"]["annotations"] = json!({"nudge.dev/restart": "never"});
    deployment(&space, "own", json!({"template": own})).await?;
    create_and_request(&space, "2").await?;
    let status = wait_until_current(&space, "2").await?;
    let (state, reason, message) = restarted_condition(&status).context("no condition Restarted")?;
    ensure!((state, reason) == ("False", "Several"), "{message}");
    for part in ["Deployment/web is paused", "StatefulSet/db has the update strategy OnDelete", "DaemonSet/log has"] {
        ensure!(message.contains(part), "{message}");
    }
    ensure!(digest(&space, "web").await?.is_some() && digest(&space, "own").await?.is_none());
    eventually(WAIT_TIMEOUT, "an Event reports it", async || {
        let events = space.api::<Event>().list(&ListParams::default()).await.ok()?.items;
        events.iter().any(|event| event.reason.as_deref() == Some("NotRestarted")).then_some(())
    })
    .await
}

#[tokio::test]
async fn a_missing_right_is_reported_and_ignored_workloads_are_left_alone() -> Result<()> {
    let Some((installation, _)) = installation().await? else { return Ok(()) };
    let space = shop(installation, "no-right", json!({})).await?;
    deployment(&space, "web", json!({"replicas": 0})).await?;
    create_and_request(&space, "2").await?;
    let status = wait_until_current(&space, "2").await?;
    let (_, reason, message) = restarted_condition(&status).context("no condition Restarted")?;
    ensure!(reason == "NotAllowed" && message.contains("bind ClusterRole nudge-restart"), "{message}");

    let space = shop(installation, "ignored", json!({"agentlessPolicy": "Ignore"})).await?;
    bind(&space, "nudge-restart").await?;
    deployment(&space, "web", json!({"replicas": 0})).await?;
    create_and_request(&space, "2").await?;
    let status = wait_until_current(&space, "2").await?;
    ensure!(restarted_condition(&status).is_none() && digest(&space, "web").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn a_config_without_objects_writes_no_config_map_and_restarts_no_reader() -> Result<()> {
    let Some((installation, _)) = installation().await? else { return Ok(()) };
    let space = installation.enabled("no-objects").await?;
    let map: ConfigMap = space.create_object(json!({"metadata": {"name": "shop"}, "data": {"key": "0"}})).await?;
    version(&space, "1").await?;
    let spec = json!({"version": "1", "rollout": at_once()});
    let config: VersionedConfig = space.create_object(json!({"metadata": {"name": "shop"}, "spec": spec})).await?;
    ensure!(config.spec.objects.is_empty(), "the API server fills in {:?}", config.spec.objects);
    wait_until_current(&space, "1").await?;
    bind(&space, "nudge-restart").await?;
    deployment(&space, "web", json!({})).await?;
    let _kubelet = Kubelet::start(&space, |_| true);
    wait_until_available(&space, &["web"]).await?;
    create_and_request(&space, "2").await?;
    let status = wait_until_current(&space, "2").await?;
    let says_it = |kind: &str| status.conditions.iter().any(|condition| condition.type_ == kind);
    ensure!(status.published_version.is_none() && !says_it("Published") && !says_it("Restarted"), "{status:#?}");
    ensure!(space.api::<ConfigMap>().get("shop").await?.resource_version() == map.resource_version(), "it was written");
    ensure!(digest(&space, "web").await?.is_none(), "it was restarted");
    Ok(())
}

#[tokio::test]
async fn pods_without_rolling_updates_are_evicted_or_named() -> Result<()> {
    let Some((installation, _)) = installation().await? else { return Ok(()) };
    let space = shop(installation, "pods", json!({})).await?;
    bind(&space, "nudge-restart").await?;
    let spec = json!({"replicas": 2, "selector": {"matchLabels": {"app": "set"}}, "template": template("set")});
    space.create_object::<ReplicaSet>(json!({"metadata": {"name": "set"}, "spec": spec})).await?;
    let mut bare = template("bare");
    bare["metadata"]["name"] = "bare".into();
    space.create_object::<Pod>(bare).await?;
    let _kubelet = Kubelet::start(&space, |_| true);
    let pods = async || -> Option<Vec<String>> {
        let pods = space.api::<Pod>().list(&ListParams::default().labels("app=set")).await.ok()?.items;
        let ready = space.api::<ReplicaSet>().get("set").await.ok()?.status?.ready_replicas;
        (pods.len() == 2 && ready == Some(2)).then(|| pods.iter().filter_map(|pod| pod.metadata.uid.clone()).collect())
    };
    let before = eventually(WAIT_TIMEOUT, "the pods run", pods).await?;
    create_and_request(&space, "2").await?;
    let status = wait_until_current(&space, "2").await?;
    let (_, reason, message) = restarted_condition(&status).context("no condition Restarted")?;
    ensure!(reason == "Stale" && message.contains("bare"), "{message}");
    let after = eventually(WAIT_TIMEOUT, "the new pods run", pods).await?;
    ensure!(after.iter().all(|uid| !before.contains(uid)), "{before:?}, {after:?}");
    Ok(())
}
