//! What injection warns of reaches people although a controller made the pod.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use nudge_protocol::labels::WARNINGS;
use nudge_tests::eventually;
use serde_json::json;

use crate::pods::injecting_cluster::{
    InjectingCluster, WAIT_TIMEOUT, create, dry, events, opted_in, pod_without_opt_in, with_annotation,
};

const REASON: &str = "InjectionWarning";
/// The warning for a pod whose containers have no resources.
const MESSAGE: &str = "nudge.dev/agent-cpu and nudge.dev/agent-memory give the agent requests, so this pod's QoS class is Burstable and no \
                       longer BestEffort";

fn warnings(pod: &Pod) -> Option<&str> {
    pod.annotations().get(WARNINGS).map(String::as_str)
}

#[tokio::test]
async fn a_warning_stands_on_each_pod_of_a_deployment_and_one_of_them_has_an_event() -> Result<()> {
    let Some(injecting) = InjectingCluster::shared().await? else { return Ok(()) };
    if !injecting.cluster.controls("replicaset") {
        return Ok(());
    }
    let space = injecting.space("warned").await?;
    let template = json!({
        "metadata": {"labels": {"app": "web", "nudge.dev/inject": "true"}, "annotations": {"nudge.dev/agent-cpu": "5m"}},
        "spec": pod_without_opt_in("unused")["spec"],
    });
    let spec = json!({"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    space.create_object::<Deployment>(json!({"metadata": {"name": "web"}, "spec": spec})).await?;
    let pods = space.api::<Pod>();
    let try_to_create = async || {
        let pods = pods.list(&ListParams::default().labels("app=web")).await.ok()?.items;
        (pods.len() == 3).then_some(pods)
    };
    let try_to_create =
        eventually(WAIT_TIMEOUT, "the pods are made", try_to_create).await.with_context(|| injecting.replica.log())?;
    for pod in &try_to_create {
        ensure!(warnings(pod) == Some(MESSAGE), "{:?}", pod.annotations());
    }
    let written = async || events(&space, REASON).await.ok().filter(|written| !written.is_empty());
    eventually(WAIT_TIMEOUT, "an Event is written", written).await.with_context(|| injecting.replica.log())?;
    // Its Event comes later, when all pods of the Deployment have been checked again.
    create(&space, &with_annotation("bare", "nudge.dev/agent-memory", "32Mi")).await?;
    let written =
        async || events(&space, REASON).await.ok().filter(|written| written.iter().any(|(pod, _)| pod == "bare"));
    let written = eventually(WAIT_TIMEOUT, "the other one has its Event", written)
        .await
        .with_context(|| injecting.replica.log())?;
    let of_web: Vec<_> = written.iter().filter(|(pod, _)| pod.starts_with("web-")).collect();
    ensure!(of_web.len() == 1 && of_web[0].1 == MESSAGE, "{written:?}");
    ensure!(try_to_create.iter().any(|pod| pod.name_any() == of_web[0].0), "{written:?}");
    Ok(())
}

#[tokio::test]
async fn what_was_only_tried_or_needs_no_warning_leaves_nothing() -> Result<()> {
    let Some(injecting) = InjectingCluster::shared().await? else { return Ok(()) };
    let space = injecting.space("unwarned").await?;
    let tried = dry(&space, &with_annotation("tried", "nudge.dev/agent-cpu", "5m")).await?;
    ensure!(warnings(&tried) == Some(MESSAGE), "a dry run shows the pod as it would be");
    let well = create(&space, &opted_in("well")).await?;
    ensure!(warnings(&well).is_none(), "{:?}", well.annotations());
    // One that was copied from a pod with a warning does not keep it.
    let copied = create(&space, &with_annotation("copied", WARNINGS, MESSAGE)).await?;
    ensure!(warnings(&copied).is_none(), "{:?}", copied.annotations());
    create(&space, &with_annotation("warned", "nudge.dev/agent-cpu", "5m")).await?;
    let written = async || events(&space, REASON).await.ok().filter(|written| !written.is_empty());
    let written =
        eventually(WAIT_TIMEOUT, "an Event is written", written).await.with_context(|| injecting.replica.log())?;
    ensure!(written == [("warned".to_owned(), MESSAGE.to_owned())], "{written:?}");
    Ok(())
}

#[tokio::test]
async fn a_jvm_that_would_end_on_the_signal_is_accepted_with_a_warning() -> Result<()> {
    let Some(injecting) = InjectingCluster::shared().await? else { return Ok(()) };
    let space = injecting.space("jvm").await?;
    let mut pod = with_annotation("jvm", "nudge.dev/notify", "SIGHUP");
    pod["spec"]["containers"][0]["command"] = json!(["java", "-jar", "/shop.jar"]);
    let accepted = dry(&space, &pod).await?;
    let warned = warnings(&accepted).unwrap_or_default();
    ensure!(
        warned.contains("container app runs java, which ends on SIGHUP unless the application handles it"),
        "{warned}"
    );
    Ok(())
}
