//! The configs of a run with their versions, and pods that use them: objects that nobody runs, with the status of pods
//! that are Ready.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use nudge_api::VersionedConfig;
use nudge_protocol::pod::TOKEN_AUDIENCE;
use nudge_tests::cluster::{Cluster, TestNamespace};
use nudge_tests::{Installation, eventually};
use serde_json::{Value, json};

use super::agents::Agents;
use crate::payload::entries;

/// Requests at the same time.
const CLIENTS: usize = 16;
/// The size of a version as JSON.
const DICTIONARY_BYTES: usize = 4096;
/// How long the tokens of agents are valid.
const TOKEN_LIFETIME: Duration = Duration::from_hours(6);
/// How long the control plane may take to see the configs.
const INDEX_TIMEOUT: Duration = Duration::from_mins(10);
/// The service account of all pods.
const SERVICE_ACCOUNT: &str = "app";
/// The template of the pods of a workload.
const TEMPLATE: &str = "7d4b9c6f5";

/// How many of everything.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) namespaces: usize,
    pub(super) configs: usize,
    /// Pods of each config.
    pub(super) pods: usize,
    /// Versions of each config, named 1, 2 and so on.
    pub(super) versions: u32,
}

/// A pod of the fleet.
pub(super) struct FleetPod {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
}

/// All of them. Configs and pods have numbers, the pods by config, and are named after them.
pub(super) struct Fleet {
    pub(super) spaces: Vec<TestNamespace>,
    pub(super) pods: Vec<FleetPod>,
}

impl Fleet {
    /// Returns the namespace of a config.
    pub(super) fn space(&self, config: usize) -> &TestNamespace {
        &self.spaces[config % self.spaces.len()]
    }
}

pub(super) fn config_name(config: usize) -> String {
    format!("shop-{config}")
}

/// Returns the workload of the pods of a config.
pub(super) fn workload(config: usize) -> String {
    format!("Deployment/web-{config}")
}

/// Returns the number that the name of a config or a pod ends with.
pub(super) fn number(name: &str) -> Option<usize> {
    name.rsplit_once('-')?.1.parse().ok()
}

/// Makes the configs, their versions and then the pods. An agent starts with each pod.
pub(super) async fn make(
    installation: &Installation<'_>,
    shape: Shape,
    rollout: &Value,
    agents: &mut Agents,
) -> Result<Fleet> {
    let enable = |_| async {
        let space = installation.enabled("fleet").await?;
        space.service_account(SERVICE_ACCOUNT).await?;
        anyhow::Ok(space)
    };
    let spaces: Vec<TestNamespace> =
        stream::iter(0..shape.namespaces).map(enable).buffered(CLIENTS).try_collect().await?;
    let mut fleet = Fleet { spaces, pods: Vec::new() };

    let configs = stream::iter(0..shape.configs).map(|number| make_config(fleet.space(number), number, shape, rollout));
    configs.buffer_unordered(CLIENTS).try_collect::<()>().await?;
    for number in 0..shape.configs {
        let api = fleet.space(number).api::<VersionedConfig>();
        let sealed = async || {
            let status = api.get(&config_name(number)).await.ok()?.status?;
            (status.current_version.is_some() && status.versions.len() >= shape.versions as usize).then_some(())
        };
        eventually(INDEX_TIMEOUT, "the versions are sealed and the first one is current", sealed).await?;
    }

    let pods = stream::iter(0..shape.configs * shape.pods).map(|number| {
        let space = fleet.space(number / shape.pods);
        async move { space.run(&space.create_object::<Pod>(pod(number, number / shape.pods)).await?).await }
    });
    let (mut pods, mut tokens) = (pods.buffered(CLIENTS), Tokens::new(installation.cluster)?);
    let mut made = Vec::new();
    while let Some(pod) = pods.try_next().await? {
        let number = made.len();
        let space = fleet.space(number / shape.pods);
        let token = tokens.of(space, &pod).await?;
        let (name, uid) = (pod.metadata.name.context("no name")?, pod.metadata.uid.context("no uid")?);
        agents.add(number, &config_name(number / shape.pods), token)?;
        made.push(FleetPod { namespace: space.name.clone(), name, uid });
    }
    drop(pods);
    fleet.pods = made;
    Ok(fleet)
}

async fn make_config(space: &TestNamespace, number: usize, shape: Shape, rollout: &Value) -> Result<()> {
    let name = config_name(number);
    let config = json!({"metadata": {"name": name}, "spec": {"version": "1", "rollout": rollout}});
    space.create_object::<VersionedConfig>(config).await?;
    for version in (1..=shape.versions).map(|version| version.to_string()) {
        let data: serde_json::Map<String, Value> =
            entries(&version, DICTIONARY_BYTES).into_iter().map(|(key, value)| (key, value.into())).collect();
        let labels = json!({"nudge.dev/config": name, "nudge.dev/version": version});
        let metadata = json!({"name": format!("{name}-{version}"), "labels": labels});
        let object = json!({"metadata": metadata, "immutable": true, "data": data});
        space.create_object::<ConfigMap>(object).await?;
    }
    Ok(())
}

/// Returns a pod of usual size, without probes.
fn pod(number: usize, config: usize) -> Value {
    let variables =
        (0..20).map(|number| json!({"name": format!("SETTING_{number}"), "value": format!("value {number}")}));
    let app = json!({"name": "app", "image": "registry.example/team/app:1.2.3", "env": variables.collect::<Vec<_>>()});
    let configs = json!([{"name": "NUDGE_CONFIGS", "value": config_name(config)}]);
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("web-{config}-{TEMPLATE}"), "controller": true,
        "uid": format!("00000000-0000-4000-8000-{config:012}"),
    });
    json!({
        "metadata": {
            "name": format!("web-{config}-{TEMPLATE}-{number}"), "ownerReferences": [owner],
            "labels": {"app": "web", "pod-template-hash": TEMPLATE, "nudge.dev/agent": "0.1.0"},
        },
        "spec": {
            "serviceAccountName": SERVICE_ACCOUNT, "automountServiceAccountToken": false,
            "containers": [{"name": "nudge-agent", "image": "nudge-agent:0.1.0", "env": configs}, app],
        },
    })
}

/// Tokens of pods: the API server makes one for each namespace, and the rest are signed here with its key.
struct Tokens<'a> {
    cluster: &'a Cluster,
    until: Duration,
    by_namespace: HashMap<String, String>,
}

impl<'a> Tokens<'a> {
    fn new(cluster: &'a Cluster) -> Result<Self> {
        let until = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)? + TOKEN_LIFETIME;
        Ok(Self { cluster, until, by_namespace: HashMap::new() })
    }

    async fn of(&mut self, space: &TestNamespace, pod: &Pod) -> Result<String> {
        let first = match self.by_namespace.entry(space.name.clone()) {
            Entry::Occupied(first) => first.into_mut(),
            Entry::Vacant(none) => none.insert(space.token(SERVICE_ACCOUNT, TOKEN_AUDIENCE, Some(pod)).await?),
        };
        self.cluster.sign_again(first, |claims| {
            claims["exp"] = self.until.as_secs().into();
            claims["kubernetes.io"]["pod"] = json!({"name": pod.metadata.name, "uid": pod.metadata.uid});
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_numbers() {
        assert_eq!(number(&config_name(17)), Some(17));
        assert_eq!(number(pod(4711, 471)["metadata"]["name"].as_str().unwrap()), Some(4711));
        assert_eq!(number("kube-root-ca.crt"), None);
    }
}
