//! The pods on the pages of the cookbook, as they stand there: they are injected, and their mounts move.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use nudge_protocol::pod::AGENT_CONTAINER;
use serde_json::{Value, json};

use crate::pods::injecting_cluster::{InjectingCluster, dry, has_agent};

#[tokio::test]
async fn every_pod_of_the_cookbook_is_injected() -> Result<()> {
    let Some(injecting) = InjectingCluster::shared().await? else { return Ok(()) };
    let space = injecting.space("cookbook").await?;
    let mut pods = 0;
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/cookbook"))? {
        let page = entry?.path().join("README.md");
        // The page about systemd has no pod.
        let text = fs::read_to_string(&page).unwrap_or_default();
        let Some((_, manifest)) = text.split_once("```yaml\n") else { continue };
        let manifest = manifest.split_once("```").context("it has no end")?.0;
        let mut pod: Value = serde_saphyr::from_str(manifest).with_context(|| page.display().to_string())?;
        pod["metadata"]["name"] = json!("cookbook");
        // As the controller of a Deployment makes it: mounts of bare pods stay.
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "cookbook", "uid": "1"});
        pod["metadata"]["ownerReferences"] = json!([owner]);
        let names = config_maps(&pod);
        ensure!(!names.is_empty(), "{} mounts no ConfigMap", page.display());
        for name in &names {
            let labels = json!({"nudge.dev/baseline": "true"});
            let map = json!({"metadata": {"name": name, "labels": labels}, "data": {"key": "value"}});
            space.create_object::<ConfigMap>(map).await.with_context(|| page.display().to_string())?;
        }
        // Old servers refuse a pod whose service account has no token in a Secret yet.
        pod["spec"]["automountServiceAccountToken"] = json!(false);
        let injected = dry(&space, &pod).await.with_context(|| page.display().to_string())?;
        ensure!(has_agent(&injected), "{}", page.display());
        let unmoved = volumes_that_stay(&injected);
        ensure!(!has_native_agent(&injected) || unmoved.is_empty(), "{}: {unmoved:?} stay", page.display());
        pods += 1;
    }
    ensure!(pods == 13, "{pods} pages have a pod");
    Ok(())
}

/// Returns the names of the ConfigMaps that the pod mounts.
fn config_maps(pod: &Value) -> Vec<String> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.filter_map(|volume| Some(volume["configMap"]["name"].as_str()?.to_owned())).collect()
}

/// Returns whether the agent starts before the containers, without which no mounts move.
fn has_native_agent(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref().expect("a specification");
    spec.init_containers.iter().flatten().any(|container| container.name == AGENT_CONTAINER)
}

/// Returns the volumes with ConfigMaps that a container still mounts.
fn volumes_that_stay(pod: &Pod) -> Vec<&str> {
    let spec = pod.spec.as_ref().expect("a specification");
    let volumes = spec.volumes.iter().flatten().filter(|volume| volume.config_map.is_some());
    let is_mounted = |volume: &&str| {
        let mut mounts = spec.containers.iter().flat_map(|container| container.volume_mounts.iter().flatten());
        mounts.any(|mount| mount.name == *volume)
    };
    volumes.map(|volume| volume.name.as_str()).filter(is_mounted).collect()
}
