//! A user who may make ConfigMaps and do everything with `VersionedConfig`s, but not update ConfigMaps, tries to decide
//! what the ConfigMap `shop` holds: by the detour of deleting the config, while nobody can be asked, and before the
//! namespace is enabled.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use nudge_api::{
    ConfigState, PartKind, Pods, RolloutSpec, Step, VersionedConfig, VersionedConfigSpec, VersionedConfigStatus,
};
use nudge_tests::cluster::installation::{bind, deploy};
use nudge_tests::cluster::space::group;
use nudge_tests::cluster::{Options, TestNamespace};
use nudge_tests::{Cluster, Finished, Installation, binary, eventually};
use serde_json::{Value, json};

const WAIT_TIMEOUT: Duration = Duration::from_mins(1);
const MARK: &str = "nudge.dev/may-activate";

/// Returns what jane may.
fn rules() -> Value {
    json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "create", "delete"]},
        {"apiGroups": ["nudge.dev"], "resources": ["versionedconfigs"], "verbs": ["*"]},
    ])
}

/// Returns the namespace as jane sees it.
async fn jane(cluster: &Cluster, space: &TestNamespace) -> Result<TestNamespace> {
    space.grant("devs", rules(), group("devs")).await?;
    let client = cluster.client(&cluster.user("jane", &["devs"])).await?;
    let jane = TestNamespace { client, name: space.name.clone() };
    let configs = jane.api::<VersionedConfig>();
    eventually(WAIT_TIMEOUT, "the role holds", async || configs.list(&ListParams::default()).await.ok()).await?;
    Ok(jane)
}

fn part(config: &str, version: &str, value: &str) -> Value {
    json!({
        "metadata": {"name": format!("{config}-{version}"), "labels": {"nudge.dev/config": config, "nudge.dev/version": version}},
        "immutable": true, "data": {"key": value},
    })
}

/// Returns a config whose pods are moved at once, and whose ConfigMap is kept at the current version; `version` may be
/// left out.
fn config(name: &str, version: Option<&str>) -> VersionedConfig {
    let version = version.map(str::to_owned);
    let rollout = RolloutSpec {
        steps: vec![Step::of(Pods::Share("100%".to_owned()))],
        min_ready_seconds: 0,
        bake_seconds: 0,
        ..RolloutSpec::default()
    };
    let objects = vec![PartKind::ConfigMap];
    VersionedConfig::new(name, VersionedConfigSpec { version, rollout, objects, ..VersionedConfigSpec::default() })
}

/// Creates a ConfigMap, and a config of it at version 1.0.0.
async fn tenant(space: &TestNamespace, name: &str) -> Result<()> {
    space.create_object::<ConfigMap>(json!({"metadata": {"name": name}, "data": {"key": "owner"}})).await?;
    make(space, config(name, None)).await?;
    space.create_object::<ConfigMap>(part(name, "1.0.0", "owner")).await?;
    space.config_status(name, "1.0.0 is published", is_published("1.0.0")).await.map(drop)
}

fn is_published(version: &'static str) -> impl Fn(&VersionedConfigStatus) -> bool {
    move |status| status.published_version.as_deref() == Some(version)
}

/// Returns whether a version that Nudge made of the text is current.
fn is_text(status: &VersionedConfigStatus) -> bool {
    status.current_version.as_deref().is_some_and(|version| version.starts_with("txt-"))
}

fn is_refused(status: &VersionedConfigStatus) -> bool {
    let stalled = status.conditions.iter().find(|condition| condition.type_ == "Stalled");
    let waits = stalled.is_some_and(|condition| condition.reason == "VersionNotAuthorized");
    waits && status.state() == ConfigState::Waiting
}

/// Returns what the published ConfigMap holds.
async fn published_value(space: &TestNamespace, name: &str) -> Result<String> {
    let map = space.api::<ConfigMap>().get(name).await?;
    map.data.and_then(|mut data| data.remove("key")).context("no key")
}

async fn change(space: &TestNamespace, name: &str, change: Value) -> Result<VersionedConfig, kube::Error> {
    space.api::<VersionedConfig>().patch(name, &PatchParams::default(), &Patch::Merge(change)).await
}

async fn make(space: &TestNamespace, object: VersionedConfig) -> Result<VersionedConfig, kube::Error> {
    space.api().create(&PostParams::default(), &object).await
}

fn assert_forbidden<T: std::fmt::Debug>(made: Result<T, kube::Error>, what: &str) -> Result<()> {
    let error = made.err().with_context(|| format!("jane could {what}"))?.to_string();
    ensure!(error.contains(&format!("user \"jane\" may not {what}")), "{error}");
    Ok(())
}

async fn nudge(kubeconfig: &Path, space: &TestNamespace, arguments: &[&str]) -> Result<Finished> {
    let mut command = Command::new(binary::kubectl_nudge()?);
    command.args(arguments).arg("--namespace").arg(&space.name).arg("--kubeconfig").arg(kubeconfig);
    tokio::task::spawn_blocking(move || Finished::of(&mut command)).await?
}

/// Applies the policies of `overlays/current`, where the server knows them.
async fn with_policies(cluster: &Cluster) -> Result<()> {
    if !cluster.has(30, "holding the rules without webhooks") {
        return Ok(());
    }
    for name in
        ["versions-made", "versions-marked", "versions-unchanged", "versions-kept", "configs", "configs-deleted"]
    {
        let file = deploy().join(format!("components/admission-policies/{name}.yaml"));
        cluster.kubectl_on(&["apply", "--server-side", "--validate=false"], &std::fs::read_to_string(file)?).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_detour_by_a_deletion_ends_at_its_first_step() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.enabled("detour").await?;
    tenant(&space, "shop").await?;
    let jane = jane(installation.cluster, &space).await?;
    let forced = json!({"metadata": {"annotations": {"nudge.dev/force-delete": "true"}}});
    assert_forbidden(change(&jane, "shop", forced).await, "set its annotation nudge.dev/force-delete")?;
    let kept = json!({"metadata": {"finalizers": ["devs.example.com/mine"]}});
    assert_forbidden(change(&jane, "shop", kept.clone()).await, "add a finalizer to it")?;

    // A finalizer that somebody else has set, for whatever reason, opens nothing either.
    change(&space, "shop", kept).await?;
    jane.api::<VersionedConfig>().delete("shop", &DeleteParams::default()).await?;
    let hers: ConfigMap = jane.create_object(part("shop", "6.6.7", "hers")).await?;
    ensure!(!hers.metadata.annotations.unwrap_or_default().contains_key(MARK), "it is marked");
    change(&jane, "shop", json!({"metadata": {"finalizers": null}})).await?;
    let configs = space.api::<VersionedConfig>();
    eventually(WAIT_TIMEOUT, "the config is gone", async || {
        configs.get_opt("shop").await.ok()?.is_none().then_some(())
    })
    .await?;
    let maps = space.api::<ConfigMap>();
    eventually(WAIT_TIMEOUT, "so is its version", async || {
        maps.get_opt("shop-1.0.0").await.ok()?.is_none().then_some(())
    })
    .await?;
    assert_forbidden(make(&jane, config("shop", None)).await, "create it")?;

    // Not even when the owner makes the config again, and changes something else of it.
    make(&space, config("shop", None)).await?;
    space.config_status("shop", "the text is current", is_text).await?;
    change(&space, "shop", json!({"spec": {"historyLimit": 3}})).await?;
    space.config_status("shop", "it still is", is_text).await?;
    assert_eq!(published_value(&space, "shop").await?, "owner");

    // Their own next version and hers are current when they say so.
    space.create_object::<ConfigMap>(part("shop", "1.0.1", "owner's next")).await?;
    change(&space, "shop", json!({"spec": {"version": "1.0.1"}})).await?;
    space.config_status("shop", "1.0.1 is published", is_published("1.0.1")).await?;
    change(&space, "shop", json!({"spec": {"version": "6.6.7"}})).await?;
    space.config_status("shop", "6.6.7 is published", is_published("6.6.7")).await?;
    assert_eq!(published_value(&space, "shop").await?, "hers");
    Ok(())
}

#[tokio::test]
async fn a_version_that_is_waited_for_is_not_anybodys_to_make() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.enabled("awaited").await?;
    tenant(&space, "shop").await?;
    let jane = jane(installation.cluster, &space).await?;
    change(&space, "shop", json!({"spec": {"version": "2.0.0"}})).await?;
    jane.create_object::<ConfigMap>(part("shop", "2.0.0", "hers")).await?;
    space.config_status("shop", "it waits", is_refused).await?;
    change(&space, "shop", json!({"spec": {"historyLimit": 3}})).await?;
    let waiting = space.config_status("shop", "it still waits", is_refused).await?;
    assert_eq!(
        (waiting.current_version.as_deref(), &*published_value(&space, "shop").await?),
        (Some("1.0.0"), "owner")
    );

    // The remedy that the condition names.
    let message = waiting
        .conditions
        .iter()
        .find(|condition| condition.type_ == "Stalled")
        .map(|condition| condition.message.clone())
        .unwrap_or_default();
    ensure!(message.ends_with("must run kubectl nudge use shop 2.0.0"), "{message}");
    let kubeconfig = installation.cluster.kubeconfig();
    let used = nudge(&kubeconfig, &space, &["use", "shop", "2.0.0", "--wait", "--timeout=60s"]).await?;
    ensure!(used.code == Some(0), "{used:?}");
    assert_eq!(published_value(&space, "shop").await?, "hers");
    Ok(())
}

#[tokio::test]
async fn what_was_made_while_nobody_could_ask_waits() -> Result<()> {
    let Some(cluster) = Cluster::installed(&Options::default()).await? else { return Ok(()) };
    let installation = Installation { cluster: &cluster };
    with_policies(&cluster).await?;
    let mut replica = installation.guarded_replica().await?;
    let space = installation.enabled("away").await?;
    tenant(&space, "shop").await?;
    let jane = jane(&cluster, &space).await?;
    replica.process.stop()?;

    let refused = make(&jane, config("mine", None)).await.err().context("jane could make a config")?;
    ensure!(refused.to_string().contains("configs"), "{refused}");
    change(&jane, "shop", json!({"spec": {"version": "6.6.7"}})).await.err().context("jane could change it")?;
    let mut marked = part("mine", "6.6.7", "hers");
    // From her own version that the webhook has marked once, or of her own making: it is over other content.
    marked["metadata"]["annotations"] = json!({MARK: "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="});
    let result = jane.create_object::<ConfigMap>(marked).await;
    if cluster.has(30, "refusing a mark without webhooks") {
        let refused = result.err().context("jane could set a mark")?.to_string();
        ensure!(refused.contains("may not set its annotation nudge.dev/may-activate"), "{refused}");
        jane.create_object::<ConfigMap>(part("mine", "6.6.7", "hers")).await?;
    } else {
        result?;
    }
    jane.create_object::<ConfigMap>(part("shop", "6.6.7", "hers")).await?;
    // With no pods it may be deleted, as always.
    jane.api::<VersionedConfig>().delete("shop", &DeleteParams::default()).await?;

    let _replica = installation.guarded_replica().await?;
    assert_forbidden(make(&jane, config("mine", None)).await, "create it")?;
    space.create_object::<ConfigMap>(json!({"metadata": {"name": "mine"}, "data": {"key": "owner"}})).await?;
    make(&space, config("mine", None)).await?;
    space.config_status("mine", "the owner's text is current", is_text).await?;
    // What the owner's was before is first.
    make(&space, config("shop", None)).await?;
    space
        .config_status("shop", "1.0.0 is current", |status| {
            status.current_version.as_deref() == Some("1.0.0") && status.version("6.6.7").is_some()
        })
        .await?;
    for name in ["mine", "shop"] {
        assert_eq!(published_value(&space, name).await?, "owner");
    }
    Ok(())
}

#[tokio::test]
async fn what_was_made_before_the_namespace_was_enabled_waits() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.cluster.space("before").await?;
    bind(&space, "nudge-namespace").await?;
    space.create_object::<ConfigMap>(json!({"metadata": {"name": "shop"}, "data": {"key": "owner"}})).await?;
    let jane = jane(installation.cluster, &space).await?;
    for (name, current) in [("shop", Some("6.6.7")), ("other", None)] {
        jane.create_object::<ConfigMap>(part(name, "6.6.7", "hers")).await?;
        make(&jane, config(name, current)).await?;
    }
    let enabled = Patch::Merge(json!({"metadata": {"labels": {"nudge.dev/enabled": "true"}}}));
    Api::<Namespace>::all(space.client.clone()).patch(&space.name, &PatchParams::default(), &enabled).await?;
    for name in ["shop", "other"] {
        space.config_status(name, "it waits", is_refused).await?;
    }
    assert_eq!(published_value(&space, "shop").await?, "owner");
    Ok(())
}
