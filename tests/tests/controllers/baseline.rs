//! The label `nudge.dev/baseline` of a namespace: which objects become configs, and when such a config goes.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod, Secret};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use nudge_api::{AgentlessPolicy, PartKind, VersionedConfig};
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::bind;
use nudge_tests::{Installation, eventually};
use serde_json::{Value, json};

/// The time of two scans of a namespace, and of a move.
const WAIT_TIMEOUT: Duration = Duration::from_secs(90);
/// The time in which something would have happened.
const CALM_TIME: Duration = Duration::from_secs(5);

async fn enabled(installation: &Installation<'_>, purpose: &str, baseline: &str) -> Result<TestNamespace> {
    let labels = [("nudge.dev/enabled", "true"), ("nudge.dev/baseline", baseline)];
    let space = installation.cluster.space_with(purpose, &labels).await?;
    bind(&space, "nudge-namespace").await?;
    space.service_account("app").await?;
    Ok(space)
}

async fn map(space: &TestNamespace, name: &str) -> Result<ConfigMap> {
    space.create_object(json!({"metadata": {"name": name}, "data": {"key": "one"}})).await
}

/// Creates a ConfigMap that is immutable.
async fn fixed(space: &TestNamespace, name: &str) -> Result<ConfigMap> {
    space.create_object(json!({"metadata": {"name": name}, "immutable": true, "data": {"key": "one"}})).await
}

/// Creates a pod with an agent that has this config, and variables of its objects of these kinds.
async fn reader(space: &TestNamespace, name: &str, config: &str, references: &[&str], owner: &Value) -> Result<Pod> {
    let sources: Vec<Value> = references.iter().map(|field| json!({*field: {"name": config}})).collect();
    let agent = json!({"name": "nudge-agent", "image": "test", "env": [{"name": "NUDGE_CONFIGS", "value": config}]});
    let pod = json!({
        "metadata": {"name": name, "labels": {"nudge.dev/agent": "0.1.0"}, "ownerReferences": owner},
        "spec": {
            "serviceAccountName": "app", "automountServiceAccountToken": false,
            "containers": [agent, {"name": "app", "image": "test", "envFrom": sources}],
        },
    });
    space.create_object(pod).await
}

async fn made(space: &TestNamespace, name: &str, kinds: &[PartKind]) -> Result<VersionedConfig> {
    let is_made = |config: &VersionedConfig| {
        let current = config.status.as_ref().and_then(|status| status.current_version.as_ref());
        current.is_some() && config.spec.objects == kinds
    };
    space.object_until(WAIT_TIMEOUT, name, "it is a config with a current version", is_made).await
}

async fn is_config(space: &TestNamespace, name: &str) -> Result<bool> {
    Ok(space.api::<VersionedConfig>().get_opt(name).await?.is_some())
}

#[tokio::test]
async fn every_config_map_that_people_change_becomes_a_config_and_comes_back() -> Result<()> {
    let Some((installation, _)) = Installation::shared().await? else { return Ok(()) };
    let space = enabled(installation, "baseline-all", "all").await?;
    for name in ["web", "web-6ct58987ht", "istio-ca-root-cert"] {
        map(&space, name).await?;
    }
    fixed(&space, "fixed").await?;
    // As many as the namespace has room for, and before the others in a list.
    for number in 0..100 {
        fixed(&space, &format!("fixed-{number}")).await?;
    }
    let config = made(&space, "web", &[PartKind::ConfigMap]).await?;
    let status = config.status.context("no status")?;
    assert_eq!(status.current_version.as_deref(), Some("1.0.0"));
    assert_eq!((config.spec.agentless_policy, config.spec.history_limit), (AgentlessPolicy::Ignore, 3));
    assert_eq!(config.metadata.labels.unwrap_or_default()["nudge.dev/baseline"], "namespace");
    // One that is created later, and one that the API server names: it is as any other.
    map(&space, "later").await?;
    made(&space, "later", &[PartKind::ConfigMap]).await?;
    let generated = json!({"metadata": {"generateName": "generated-"}, "data": {"key": "one"}});
    let generated: ConfigMap = space.create_object(generated).await?;
    made(&space, &generated.name_any(), &[PartKind::ConfigMap]).await?;
    let first = space.api::<VersionedConfig>().get("web").await?.metadata.uid;
    space.api::<VersionedConfig>().delete("web", &DeleteParams::default()).await?;
    let is_another = |config: &VersionedConfig| config.metadata.uid != first;
    space.object_until(WAIT_TIMEOUT, "web", "it comes back", is_another).await?;
    made(&space, "web", &[PartKind::ConfigMap]).await?;
    for name in ["web-6ct58987ht", "istio-ca-root-cert", "fixed", "kube-root-ca.crt"] {
        ensure!(!is_config(&space, name).await?, "{name} is a config");
        let ordinary = space.api::<ConfigMap>().get_opt(name).await?;
        ensure!(ordinary.is_none_or(|map| !map.labels().contains_key("nudge.dev/follows")), "{name} is followed");
    }
    Ok(())
}

#[tokio::test]
async fn a_full_namespace_says_so_on_a_config_map_that_would_become_a_config() -> Result<()> {
    let Some((installation, _)) = Installation::shared().await? else { return Ok(()) };
    let space = enabled(installation, "baseline-full", "all").await?;
    for number in 0..100 {
        let config = json!({"metadata": {"name": format!("config-{number}")}, "spec": {}});
        space.create_object::<VersionedConfig>(config).await?;
    }
    fixed(&space, "fixed").await?;
    map(&space, "web").await?;
    let full = async || {
        let events = space.api::<Event>().list(&ListParams::default()).await.ok()?.items;
        let full = events.into_iter().filter(|event| event.reason.as_deref() == Some("BaselineFull"));
        Some(full.collect::<Vec<_>>()).filter(|events| !events.is_empty())
    };
    for event in eventually(WAIT_TIMEOUT, "an Event says so", full).await? {
        let message = event.message.unwrap_or_default();
        let expected = "no config is made of ConfigMap web, because its namespace has 100 configs";
        ensure!(message.starts_with(expected), "{message}");
    }
    ensure!(!is_config(&space, "web").await? && !is_config(&space, "fixed").await?);
    Ok(())
}

#[tokio::test]
async fn a_secret_that_a_pod_reads_becomes_a_config_where_nudge_may_make_versions_of_it() -> Result<()> {
    let Some((installation, _)) = Installation::shared().await? else { return Ok(()) };
    let space = enabled(installation, "baseline-secrets", "mounted").await?;
    for name in ["keys", "helm"] {
        let secret_type = if name == "helm" { "helm.sh/release.v1" } else { "Opaque" };
        let secret = json!({"metadata": {"name": name}, "type": secret_type, "stringData": {"pin": "hunter2"}});
        space.create_object::<Secret>(secret).await?;
        reader(&space, name, name, &["secretRef"], &Value::Null).await?;
    }
    map(&space, "keys").await?;
    bind(&space, "nudge-secrets").await?;
    tokio::time::sleep(CALM_TIME).await;
    ensure!(!is_config(&space, "keys").await?, "nothing can make its version");
    bind(&space, "nudge-publish-secrets").await?;
    // A pod is news, and so the object is read again.
    reader(&space, "keys-2", "keys", &["secretRef"], &Value::Null).await?;
    made(&space, "keys", &[PartKind::Secret]).await?;
    // The author of another pod changes no config that pods have.
    reader(&space, "keys-3", "keys", &["secretRef", "configMapRef"], &Value::Null).await?;
    tokio::time::sleep(CALM_TIME).await;
    let config = made(&space, "keys", &[PartKind::Secret]).await?;
    ensure!(!serde_json::to_string(&config)?.contains("hunter"), "{config:?}");
    ensure!(!is_config(&space, "helm").await?, "a release of Helm is no configuration");
    Ok(())
}

#[tokio::test]
async fn a_config_of_its_namespace_goes_with_its_object_and_its_readers() -> Result<()> {
    let Some((installation, _)) = Installation::shared().await? else { return Ok(()) };
    let space = enabled(installation, "baseline-end", "mounted").await?;
    for name in ["web", "kept", "read"] {
        map(&space, name).await?;
        reader(&space, name, name, &["configMapRef"], &Value::Null).await?;
        made(&space, name, &[PartKind::ConfigMap]).await?;
    }
    // Somebody adopts one.
    let spec = Patch::Merge(json!({"spec": {"historyLimit": 10}}));
    space.api::<VersionedConfig>().patch("kept", &PatchParams::default(), &spec).await?;
    for name in ["web", "kept", "read"] {
        space.api::<ConfigMap>().delete(name, &DeleteParams::default()).await?;
        if name != "read" {
            space.api::<Pod>().delete(name, &DeleteParams::default().grace_period(0)).await?;
        }
    }
    let configs = space.api::<VersionedConfig>();
    eventually(WAIT_TIMEOUT, "web is gone", async || configs.get_opt("web").await.ok()?.is_none().then_some(()))
        .await?;
    eventually(WAIT_TIMEOUT, "its version is gone", async || {
        space.api::<ConfigMap>().get_opt("web-1.0.0").await.ok()?.is_none().then_some(())
    })
    .await?;
    tokio::time::sleep(CALM_TIME).await;
    ensure!(is_config(&space, "kept").await?, "it was adopted");
    ensure!(is_config(&space, "read").await?, "a pod reads it");
    Ok(())
}

#[tokio::test]
async fn the_object_and_the_workload_have_the_events_of_a_move() -> Result<()> {
    let Some((installation, _)) = Installation::shared().await? else { return Ok(()) };
    let space = enabled(installation, "baseline-events", "mounted").await?;
    let template =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "app", "image": "test"}]}});
    let spec = json!({"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    let workload: Deployment = space.create_object(json!({"metadata": {"name": "web"}, "spec": spec})).await?;
    let object = map(&space, "shop").await?;
    // The controller of Deployments does not look at pods.
    let owner = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": workload.uid(), "controller": true}]);
    reader(&space, "web", "shop", &["configMapRef"], &owner).await?;
    made(&space, "shop", &[PartKind::ConfigMap]).await?;
    let has_event = async |uid: Option<String>, reason: &str| {
        let events = space.api::<Event>().list(&ListParams::default()).await.ok()?;
        let is_expected = |event: &Event| {
            event.involved_object.uid == uid
                && event.reason.as_deref() == Some(reason)
                && event.message.as_deref().is_some_and(|message| message.starts_with("config shop: "))
        };
        events.iter().any(is_expected).then_some(())
    };
    for (kind, uid) in [("ConfigMap", object.uid()), ("Deployment", workload.uid())] {
        eventually(WAIT_TIMEOUT, &format!("the {kind} has the Event"), async || {
            has_event(uid.clone(), "Current").await
        })
        .await?;
    }
    let empty = Patch::Merge(json!({"data": null}));
    space.api::<ConfigMap>().patch("shop", &PatchParams::default(), &empty).await?;
    eventually(WAIT_TIMEOUT, "the empty ConfigMap has the Event", async || has_event(object.uid(), "NoText").await)
        .await
}
