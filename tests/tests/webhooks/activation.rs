//! The whole way: kubectl, a real API server, the control plane, an agent, an application's signal handler.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Patch, PatchParams};
use nudge_api::VersionedConfig;
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::{agent_token, at_once, bind, create_part, hub_ca, injected_pod};
use nudge_tests::{Installation, Pod, Replica, eventually};
use serde_json::{Value, json};

const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns a version of the examples as a manifest.
fn example(version: &str) -> Result<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/config/shop").join(version);
    let mut data = serde_json::Map::new();
    for entry in std::fs::read_dir(&folder)? {
        let entry = entry?;
        let value = std::fs::read_to_string(entry.path())?;
        data.insert(entry.file_name().to_string_lossy().into_owned(), value.into());
    }
    Ok(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": format!("shop-{version}"), "labels": {"nudge.dev/config": "shop", "nudge.dev/version": version}},
        "immutable": true, "data": data,
    }))
}

fn config(name: &str, current: &str) -> Value {
    json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": name}, "spec": {"version": current, "rollout": at_once()}})
}

/// Returns a manifest of these objects.
fn manifest(objects: &[Value]) -> String {
    let documents: Vec<String> = objects.iter().map(Value::to_string).collect();
    // With the first separator, kubectl reads YAML, not one JSON object.
    format!("---\n{}\n", documents.join("\n---\n"))
}

/// Returns a pod of this config with its agent's address and keys, in which nothing runs yet.
async fn pod(space: &TestNamespace, replica: &Replica, name: &str, configs: &'static str) -> Result<Pod> {
    let object = injected_pod(space, name, configs).await?;
    let hub = format!("https://{}", replica.hub);
    let mut pod = Pod::of(hub, &hub_ca(space).await?, &agent_token(space, &object).await?)?;
    pod.configs = configs;
    Ok(pod)
}

#[tokio::test]
async fn what_kubectl_applies_reaches_an_application() -> Result<()> {
    let Some((installation, replica)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.enabled("apply").await?;
    let apply = ["apply", "--server-side", "--namespace", &space.name];
    let objects = [example("1.0.0")?, example("1.0.1")?, config("shop", "1.0.0")];
    installation.cluster.kubectl_on(&apply, &manifest(&objects)).await?;

    let pod = pod(&space, replica, "web", "shop").await?;
    let files = pod.path("files");
    let path = files.to_str().context("a path")?.to_owned();
    let mut pod = pod.with(&["--mount-path", &path, "--notify", "app=SIGUSR1"]);
    let greeting = format!("{path}/greeting");
    pod.start_app(env!("CARGO_BIN_EXE_app"), &["--catch", "SIGUSR1", "--read", &greeting]).await?;
    let mut client = pod.start().await?;
    pod.wait_until_served(&mut client, "shop=1.0.0").await?;

    installation.cluster.kubectl_on(&apply, &manifest(&[config("shop", "1.0.1")])).await?;
    pod.app_says(1, "SIGUSR1 welcome").await?;
    pod.wait_until_served(&mut client, "shop=1.0.1").await?;

    // What the pod runs is seen on the pod and on the config.
    let pods = space.api::<k8s_openapi::api::core::v1::Pod>();
    eventually(WAIT_TIMEOUT, "the pod's condition says so", async || {
        let conditions = pods.get("web").await.ok()?.status?.conditions?;
        let own = conditions.into_iter().find(|condition| condition.type_ == "nudge.dev/ConfigCurrent")?;
        (own.status == "True" && own.message?.starts_with("shop=1.0.1")).then_some(())
    })
    .await?;
    let configs = space.api::<VersionedConfig>();
    eventually(WAIT_TIMEOUT, "the config counts it", async || {
        (configs.get("shop").await.ok()?.status?.pods.summary == "1/1").then_some(())
    })
    .await
}

#[tokio::test]
async fn both_orders_of_applying_end_the_same_and_a_dry_run_passes() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.enabled("orders").await?;
    let version = |config: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("{config}-1"), "labels": {"nudge.dev/config": config, "nudge.dev/version": "1"}},
            "immutable": true, "data": {"key": "value"},
        })
    };
    let apply = ["apply", "--server-side", "--namespace", &space.name];
    let dry = [&apply[..], &["--dry-run=server"]].concat();
    installation.cluster.kubectl_on(&dry, &manifest(&[config("one", "1"), version("one")])).await?;
    ensure!(space.api::<VersionedConfig>().get_opt("one").await?.is_none());
    installation.cluster.kubectl_on(&apply, &manifest(&[config("one", "1"), version("one")])).await?;
    installation.cluster.kubectl_on(&apply, &manifest(&[version("two"), config("two", "1")])).await?;
    for name in ["one", "two"] {
        let api = space.api::<VersionedConfig>();
        eventually(WAIT_TIMEOUT, "1 is current", async || {
            let status = api.get(name).await.ok()?.status?;
            (status.current_version.as_deref() == Some("1")
                && status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"))
            .then_some(())
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_version_of_three_parts_arrives_whole_or_not_at_all() -> Result<()> {
    let Some((installation, replica)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.enabled("parts").await?;
    bind(&space, "nudge-secrets").await?;
    let value = |seed: usize| "c9f1e7a3b5d80246".repeat(53 * 1024).split_off(seed);
    let labels = |version: &str, number: &str| json!({"nudge.dev/config": "shop", "nudge.dev/version": version, "nudge.dev/part": number});
    let meta = |name: &str, version: &str, number: &str| json!({"name": name, "labels": labels(version, number), "annotations": {"nudge.dev/parts": "3"}});
    for (version, seed) in [("1", 0), ("2", 1)] {
        for number in ["1", "2"] {
            let object = json!({
                "metadata": meta(&format!("large-{version}-{number}"), version, number), "immutable": true,
                "data": {format!("part-{number}"): value(seed), format!("version-{number}"): version},
            });
            space.create_object::<ConfigMap>(object).await?;
        }
        let object = json!({
            "metadata": meta(&format!("large-{version}-3"), version, "3"), "immutable": true,
            "stringData": {"part-3": value(seed), "version-3": version},
        });
        space.create_object::<Secret>(object).await?;
    }
    space.create_object::<VersionedConfig>(config("shop", "1")).await?;
    let mut pod = pod(&space, replica, "web", "shop").await?;
    let mut client = pod.start().await?;
    pod.wait_until_served(&mut client, "shop=1").await?;
    let patch = json!({"spec": {"version": "2"}});
    space.api::<VersionedConfig>().patch("shop", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    // At every moment all three parts are of one version.
    let switched = async || {
        let reply = client.get("/config").await.ok()?;
        let dictionary: serde_json::Map<String, Value> = serde_json::from_slice(&reply.body).ok()?;
        let versions =
            ["version-1", "version-2", "version-3"].map(|key| dictionary[key].as_str().unwrap_or_default().to_owned());
        let length: usize =
            ["part-1", "part-2", "part-3"].map(|key| dictionary[key].as_str().map_or(0, str::len)).iter().sum();
        if versions.windows(2).any(|pair| pair[0] != pair[1]) || length < 2_500_000 {
            return Some(Err(anyhow::anyhow!("{versions:?}, {length} bytes")));
        }
        (versions[0] == "2").then_some(Ok(()))
    };
    eventually(WAIT_TIMEOUT, "version 2 is there", switched).await??;
    let log = replica.log();
    ensure!(
        log.contains("audit") && !log.contains("c9f1e7a3b5d80246"),
        "delivery of a Secret is logged, its value is not"
    );
    Ok(())
}

#[tokio::test]
async fn a_config_that_a_pod_may_not_have_hides_nothing_of_its_other_one() -> Result<()> {
    let Some((installation, replica)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.enabled("two").await?;
    for (config, version) in [("shop", "1"), ("shop", "2"), ("shop", "3"), ("other", "1")] {
        let labels = json!({"nudge.dev/config": config, "nudge.dev/version": version});
        let meta = json!({"name": format!("{config}-{version}"), "labels": labels});
        create_part::<ConfigMap>(&space, json!({"metadata": meta, "immutable": true, "data": {config: version}}))
            .await?;
    }
    for name in ["shop", "other"] {
        space.create_object::<VersionedConfig>(config(name, "1")).await?;
    }
    let mut web = pod(&space, replica, "web", "shop,other").await?;
    let mut client = web.start().await?;
    web.wait_until_served(&mut client, "shop=1,other=1").await?;
    let configs = space.api::<VersionedConfig>();
    let change = async |name: &str, spec: Value| -> Result<()> {
        configs.patch(name, &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await?;
        Ok(())
    };
    let pods = space.api::<k8s_openapi::api::core::v1::Pod>();
    let says = async |name: &str, reason: &str, text: &str| {
        let description = format!("pod {name} says {reason}: {text}");
        eventually(WAIT_TIMEOUT, &description, async || {
            let conditions = pods.get(name).await.ok()?.status?.conditions?;
            let own = conditions.into_iter().find(|condition| condition.type_ == "nudge.dev/ConfigCurrent")?;
            (own.reason? == reason && own.message?.contains(text)).then_some(())
        })
        .await
    };
    change("other", json!({"allowedServiceAccounts": ["another"]})).await?;
    says("web", "NotAllowed", "other").await?;

    // The rollout of the other config ends.
    change("shop", json!({"version": "2"})).await?;
    web.wait_until_served(&mut client, "shop=2,other=1").await?;
    let is_current = async || {
        let status = configs.get("shop").await.ok()?.status?;
        (status.current_version.as_deref() == Some("2") && status.pods.summary == "1/1").then_some(())
    };
    eventually(WAIT_TIMEOUT, "version 2 is current on its one pod", is_current).await?;
    says("web", "NotAllowed", "shop=2").await?;

    // What the agent has to say of it is not hidden either.
    let mut deaf = pod(&space, replica, "deaf", "shop,other").await?.with(&["--notify", "app=SIGUSR1"]);
    deaf.start_app(env!("CARGO_BIN_EXE_app"), &[]).await?;
    deaf.start().await?;
    change("shop", json!({"version": "3"})).await?;
    says("deaf", "NoHandler", "shop=").await
}
