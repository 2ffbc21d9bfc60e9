//! Without Nudge a namespace can be deleted, and removing Nudge deletes nothing that users created.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use nudge_api::VersionedConfig;
use nudge_tests::cluster::installation::{at_once, create_part, deploy};
use nudge_tests::cluster::{Options, TestNamespace};
use nudge_tests::{Cluster, Installation, ReplicaOptions, eventually};
use serde_json::json;

const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

async fn with_config(installation: &Installation<'_>, purpose: &str) -> Result<TestNamespace> {
    let space = installation.enabled(purpose).await?;
    space.create_object::<ConfigMap>(json!({"metadata": {"name": "shop"}, "data": {"key": "zero"}})).await?;
    let config = json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"}, "spec": {"version": "2", "rollout": at_once(), "objects": ["ConfigMap"]}});
    space.create_object::<VersionedConfig>(config).await?;
    for version in ["1", "2"] {
        let labels = json!({"nudge.dev/config": "shop", "nudge.dev/version": version});
        let object = json!({
            "metadata": {"name": format!("shop-{version}"), "labels": labels}, "immutable": true,
            "data": {"key": version}, "binaryData": {"bytes": "/w=="},
        });
        create_part::<ConfigMap>(&space, object).await?;
    }
    let api = space.api::<VersionedConfig>();
    eventually(WAIT_TIMEOUT, "2 is current and published", async || {
        let status = api.get("shop").await.ok()?.status?;
        let both = [status.current_version, status.published_version];
        both.iter().all(|version| version.as_deref() == Some("2")).then_some(())
    })
    .await?;
    Ok(space)
}

/// Returns every ConfigMap with all that users see of it.
async fn config_maps(space: &TestNamespace) -> Result<BTreeMap<String, String>> {
    let maps: Api<ConfigMap> = space.api();
    let listed_maps = maps.list(&ListParams::default()).await?;
    let ours = listed_maps.into_iter().filter(|map| map.name_any() != "kube-root-ca.crt");
    ours.map(|mut map| {
        map.metadata.managed_fields = None;
        Ok((map.name_any(), serde_json::to_string(&map)?))
    })
    .collect()
}

#[tokio::test]
async fn removing_nudge_leaves_every_version_and_published_config_map() -> Result<()> {
    let options = Options::default().controllers(&["namespace", "serviceaccount", "garbagecollector"]);
    let Some(cluster) = Cluster::installed(&options).await? else { return Ok(()) };
    let installation = Installation { cluster: &cluster };
    let replica = installation.replica(&ReplicaOptions::default()).await?;
    let space = with_config(&installation, "kept").await?;
    let before = config_maps(&space).await?;
    ensure!(before.len() == 3, "{before:?}");
    // With the injector still running: the hardest case.
    for file in ["crd", "rbac", "namespace"] {
        let path = deploy().join(format!("base/{file}.yaml"));
        let path = path.to_str().context("a path")?;
        let removed = cluster.kubectl(&["delete", "--ignore-not-found", "-f", path]).await?.context("kubectl")?;
        ensure!(removed.code == Some(0), "{}", removed.stderr);
        if file == "crd" {
            let message = "so the versions stay";
            eventually(WAIT_TIMEOUT, "the controller has seen it", async || {
                replica.log().contains(message).then_some(())
            })
            .await?;
        }
    }
    assert_eq!(config_maps(&space).await?, before);
    Ok(())
}
