//! What becomes of pods that opt in.

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, LimitRange, Pod};
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Api, ResourceExt as _};
use nudge_api::VersionedConfig;
use nudge_protocol::pod::{AGENT_CONTAINER, env};
use nudge_tests::eventually;
use serde_json::{Value, json};

use crate::pods::injecting_cluster::{
    InjectingCluster, WAIT_TIMEOUT, create, dry, has_agent, opted_in, pod_without_opt_in, refusal, with_annotation,
};

fn agent(pod: &Pod) -> (&Container, bool) {
    let spec = pod.spec.as_ref().expect("a specification");
    let is_agent = |container: &&Container| container.name == AGENT_CONTAINER;
    if let Some(sidecar) = spec.init_containers.iter().flatten().find(is_agent) {
        return (sidecar, true);
    }
    (spec.containers.iter().find(is_agent).expect("the agent"), false)
}

fn variable<'a>(container: &'a Container, name: &str) -> Option<&'a str> {
    container.env.iter().flatten().find(|variable| variable.name == name)?.value.as_deref()
}

#[tokio::test]
async fn a_deployments_pods_come_out_injected() -> Result<()> {
    let Some(injecting) = InjectingCluster::shared().await? else { return Ok(()) };
    if !injecting.cluster.controls("replicaset") {
        return Ok(());
    }
    let space = injecting.space("deployment").await?;
    let template = pod_without_opt_in("unused");
    let labels = json!({"app": "web", "nudge.dev/inject": "true"});
    let object = json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
        },
    });
    space.create_object::<Deployment>(object).await?;
    let pods = space.api::<Pod>();
    let create = async || {
        let pods = pods.list(&ListParams::default().labels("app=web")).await.ok()?.items;
        (pods.len() == 2).then_some(pods)
    };
    let create =
        eventually(WAIT_TIMEOUT, "the pods are made", create).await.with_context(|| injecting.replica.log())?;
    for pod in &create {
        assert!(has_agent(pod));
        let (container, is_sidecar) = agent(pod);
        let modern = injecting.cluster.version().minor >= 29;
        assert_eq!(is_sidecar, modern, "{:?}", injecting.cluster.version());
        assert_eq!(container.restart_policy.as_deref(), modern.then_some("Always"));
        assert_eq!(variable(container, env::CONFIGS), Some("shop"));
        let hub = format!("https://{}", injecting.replica.hub);
        assert_eq!(variable(container, env::HUB), Some(hub.as_str()));
        assert!(variable(container, env::HUB_CA).is_some_and(|bundle| bundle.starts_with("-----BEGIN CERTIFICATE")));
    }
    Ok(())
}

#[tokio::test]
async fn a_pod_that_opts_out_or_does_not_opt_in_stays_as_it_is() -> Result<()> {
    let Some(injecting) = InjectingCluster::shared().await? else { return Ok(()) };
    let space = injecting.space("stays").await?;
    let mut no = opted_in("no");
    no["metadata"]["labels"]["nudge.dev/inject"] = json!("false");
    // The label brings it to the webhook, and the annotation decides.
    for pod in [pod_without_opt_in("plain"), no, with_annotation("out", "nudge.dev/inject", "false")] {
        assert!(!has_agent(&create(&space, &pod).await?), "{pod}");
    }
    assert!(has_agent(&create(&space, &opted_in("yes")).await?));
    Ok(())
}

#[tokio::test]
async fn a_wrong_value_is_refused_with_its_annotation_and_what_is_allowed() -> Result<()> {
    let Some(injecting) = InjectingCluster::shared().await? else { return Ok(()) };
    let space = injecting.space("wrong").await?;
    for (annotation, value) in [
        ("nudge.dev/agent-port", "99999999"),
        ("nudge.dev/notify", "SIGKILL"),
        ("nudge.dev/notify.ghost", "SIGHUP"),
        ("nudge.dev/agent-cpu", "much"),
        ("nudge.dev/inject", "yes"),
    ] {
        let message = refusal(create(&space, &with_annotation("web", annotation, value)).await);
        let begin = "admission webhook \"pods.nudge.dev\" denied the request: Pod web: annotation ";
        assert!(message.starts_with(begin) && message.contains(annotation), "{message}");
    }
    let mut generated = with_annotation("", "nudge.dev/agent-port", "x");
    generated["metadata"] = json!({"generateName": "web-", "labels": generated["metadata"]["labels"], "annotations": {"nudge.dev/agent-port": "x"}});
    let message = refusal(create(&space, &generated).await);
    assert!(message.contains("Pod web-*: annotation nudge.dev/agent-port: \"x\" is not allowed"), "{message}");
    assert!(space.api::<Pod>().list(&ListParams::default()).await?.items.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_label_or_an_annotation_that_is_not_known_is_refused_with_the_nearest_one() -> Result<()> {
    let Some(injecting) = InjectingCluster::shared().await? else { return Ok(()) };
    let space = injecting.space("unknown").await?;
    let version = env!("CARGO_PKG_VERSION");
    for (annotation, known) in [
        ("nudge.dev/notfy", "nudge.dev/notify"),
        ("nudge.dev/notfy.app", "nudge.dev/notify.app"),
        ("nudge.dev/cpu", "nudge.dev/agent-cpu"), // words: allow
    ] {
        let message = refusal(create(&space, &with_annotation("web", annotation, "1")).await);
        let expected = format!(
            "denied the request: Pod web: annotation {annotation} is not known to Nudge {version}; did you mean {known}?"
        );
        assert!(message.ends_with(&expected), "{message}");
    }
    let mut labelled = opted_in("web");
    labelled["metadata"]["labels"]["nudge.dev/configs"] = json!("shop");
    let message = refusal(create(&space, &labelled).await);
    assert!(
        message.ends_with(&format!("label nudge.dev/configs is not known to Nudge {version}; set it as an annotation")),
        "{message}"
    );
    // What has no agent is nobody's business.
    let mut plain = pod_without_opt_in("plain");
    plain["metadata"]["annotations"] = json!({"nudge.dev/notfy": "SIGHUP"});
    create(&space, &plain).await?;
    Ok(())
}

#[tokio::test]
async fn a_dry_run_shows_the_pod_and_leaves_nothing_behind() -> Result<()> {
    let Some(injecting) = InjectingCluster::shared().await? else { return Ok(()) };
    let space = injecting.space("dry").await?;
    assert!(has_agent(&dry(&space, &opted_in("web")).await?));
    assert!(space.api::<Pod>().list(&ListParams::default()).await?.items.is_empty());
    // A pod that is stored makes a config of the ConfigMap. The later question about it shows that the first pod was
    // not stored.
    let account = "system:serviceaccount:nudge-system:nudge-injector";
    let by_nudge = |event: &Value| {
        event["user"]["username"] == account
            && event["objectRef"]["namespace"] == space.name.as_str()
            && !["get", "list", "watch"].contains(&event["verb"].as_str().unwrap_or_default())
    };
    assert_eq!(injecting.cluster.audit(&space.name)?.iter().find(|event| by_nudge(event)), None);
    create(&space, &opted_in("web")).await?;
    let configs = space.api::<VersionedConfig>();
    eventually(WAIT_TIMEOUT, "the stored pod's config is made", async || configs.get_opt("shop").await.ok()?).await?;
    assert!(injecting.cluster.audit(&space.name)?.iter().any(by_nudge));
    Ok(())
}

#[tokio::test]
async fn what_is_injected_stays_as_it_is_when_it_is_seen_again() -> Result<()> {
    let Some(injecting) = InjectingCluster::shared().await? else { return Ok(()) };
    let space = injecting.space("again").await?;
    let first = create(&space, &with_annotation("first", "nudge.dev/notify", "SIGHUP")).await?;
    // As JSON: the server may know fields that this client's types don't.
    let pods =
        Api::<DynamicObject>::namespaced_with(space.client.clone(), &space.name, &ApiResource::erase::<Pod>(&()));
    let stored = pods.get("first").await?;
    let mut again = DynamicObject { data: json!({"spec": stored.data["spec"]}), ..stored.clone() };
    again.metadata = ObjectMeta {
        name: Some("second".to_owned()),
        labels: stored.metadata.labels.clone(),
        annotations: stored.metadata.annotations.clone(),
        ..ObjectMeta::default()
    };
    let second = pods.create(&PostParams::default(), &again).await?;
    assert!(has_agent(&first));
    assert_eq!(stored.data["spec"], second.data["spec"]);
    assert_eq!((first.labels(), first.annotations()), (second.labels(), second.annotations()));
    Ok(())
}

#[tokio::test]
async fn the_version_that_is_current_at_admission_is_mounted() -> Result<()> {
    let Some(injecting) = InjectingCluster::shared().await? else { return Ok(()) };
    let space = injecting.space("mounted").await?;
    let config = json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"}, "spec": {}});
    space.create_object::<VersionedConfig>(config).await?;
    let version = json!({
        "metadata": {"name": "shop-7-abc", "labels": {"nudge.dev/config": "shop", "nudge.dev/version": "7"}},
        "immutable": true, "data": {"lives": "7"},
    });
    space.create_object::<k8s_openapi::api::core::v1::ConfigMap>(version).await?;
    let read = async || {
        let pod = dry(&space, &opted_in("web")).await.ok()?;
        let text = serde_json::to_string(&pod.spec?.volumes).ok()?;
        text.contains("shop-7-abc").then_some(())
    };
    eventually(WAIT_TIMEOUT, "a new pod mounts the current version", read).await
}

#[tokio::test]
async fn the_agent_keeps_to_the_namespaces_limits_or_the_pod_is_refused_with_the_annotation() -> Result<()> {
    let Some(injecting) = InjectingCluster::shared().await? else { return Ok(()) };
    let space = injecting.space("limits").await?;
    let range = json!({
        "metadata": {"name": "range"},
        "spec": {"limits": [{"type": "Container", "max": {"memory": "1Gi"}, "min": {"memory": "48Mi"},
            "default": {"memory": "64Mi"}, "defaultRequest": {"memory": "64Mi"}}]},
    });
    space.create_object::<LimitRange>(range).await?;
    // The API server's own knowledge of it is a moment old.
    let limited = async || {
        let pod = dry(&space, &pod_without_opt_in("probe")).await.ok()?;
        pod.spec?.containers.first()?.resources.as_ref()?.requests.clone()
    };
    eventually(WAIT_TIMEOUT, "the API server knows the LimitRange", limited).await?;
    let pod = create(&space, &opted_in("web")).await?;
    let resources = agent(&pod).0.resources.clone().context("resources")?;
    let memory = resources.requests.as_ref().and_then(|requests| requests.get("memory")).context("a request")?;
    assert_eq!(memory.0, "48Mi");
    let message = refusal(create(&space, &with_annotation("small", "nudge.dev/agent-memory", "32Mi")).await);
    assert!(message.contains("pods.nudge.dev") && message.contains("nudge.dev/agent-memory"), "{message}");
    let message = refusal(create(&space, &with_annotation("large", "nudge.dev/agent-memory", "2Gi")).await);
    assert!(message.contains("pods.nudge.dev") && message.contains("nudge.dev/agent-memory"), "{message}");
    Ok(())
}
