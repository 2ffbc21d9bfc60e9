//! A cluster with Nudge, and pods for it.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod};
use kube::api::{ListParams, PostParams};
use nudge_protocol::pod::AGENT_CONTAINER;
use nudge_tests::cluster::TestNamespace;
use nudge_tests::{Cluster, Installation, Replica, eventually};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// How long something may take that should be there at once, on a busy machine.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_mins(1);

/// The shared cluster, where pods that opt in are injected.
pub(crate) struct InjectingCluster {
    pub(crate) cluster: &'static Cluster,
    pub(crate) installation: &'static Installation<'static>,
    pub(crate) replica: &'static Replica,
}

impl InjectingCluster {
    /// Returns what the tests of this process share; `None` where the test is to be skipped.
    pub(crate) async fn shared() -> Result<Option<&'static Self>> {
        static SHARED: OnceCell<InjectingCluster> = OnceCell::const_new();
        let Some((installation, replica)) = Installation::shared_with_webhooks().await? else { return Ok(None) };
        let injecting = async || {
            let space = installation.enabled("probe").await?;
            wait_until_injected(&space).await.with_context(|| replica.log())?;
            Ok::<_, anyhow::Error>(Self { cluster: installation.cluster, installation, replica })
        };
        SHARED.get_or_try_init(injecting).await.map(Some)
    }

    /// Returns an enabled namespace with a ConfigMap `shop`.
    pub(crate) async fn space(&self, purpose: &str) -> Result<TestNamespace> {
        let space = self.installation.enabled(purpose).await?;
        config_map(&space).await?;
        Ok(space)
    }
}

/// Creates the ConfigMap `shop`.
pub(crate) async fn config_map(space: &TestNamespace) -> Result<()> {
    let map = json!({"metadata": {"name": "shop", "labels": {"nudge.dev/baseline": "true"}}, "data": {"lives": "3"}});
    space.create_object::<ConfigMap>(map).await.map(drop)
}

/// Waits until pods that opt in are injected: the API server and Nudge both learn of a namespace and of each other in
/// their own time.
pub(crate) async fn wait_until_injected(space: &TestNamespace) -> Result<()> {
    config_map(space).await?;
    let injected = async || dry(space, &opted_in("probe")).await.ok().filter(has_agent).map(drop);
    eventually(WAIT_TIMEOUT, "pods are injected", injected).await
}

/// Returns a pod that uses the ConfigMap `shop`.
pub(crate) fn pod_without_opt_in(name: &str) -> Value {
    let app = json!({"name": "app", "image": "test", "envFrom": [{"configMapRef": {"name": "shop"}}]});
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        // Old servers refuse a pod whose service account has no token in a Secret yet.
        "spec": {"automountServiceAccountToken": false, "containers": [app]},
    })
}

/// Returns the same with the label.
pub(crate) fn opted_in(name: &str) -> Value {
    let mut pod = pod_without_opt_in(name);
    pod["metadata"]["labels"] = json!({"nudge.dev/inject": "true"});
    pod
}

/// Returns the same with the label and an annotation.
pub(crate) fn with_annotation(name: &str, annotation: &str, value: &str) -> Value {
    let mut pod = opted_in(name);
    pod["metadata"]["annotations"] = json!({annotation: value});
    pod
}

pub(crate) async fn create(space: &TestNamespace, pod: &Value) -> Result<Pod, kube::Error> {
    space.create_with(&PostParams::default(), &serde_json::from_value(pod.clone()).expect("a pod")).await
}

pub(crate) async fn dry(space: &TestNamespace, pod: &Value) -> Result<Pod, kube::Error> {
    let parameters = PostParams { dry_run: true, ..PostParams::default() };
    space.create_with(&parameters, &serde_json::from_value(pod.clone()).expect("a pod")).await
}

/// Returns whether the pod was injected.
pub(crate) fn has_agent(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref().expect("a specification");
    let labelled = pod.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key("nudge.dev/agent"));
    let init = spec.init_containers.iter().flatten();
    let there = init.chain(&spec.containers).any(|container| container.name == AGENT_CONTAINER);
    assert_eq!(there, labelled, "the agent and its label come together");
    there
}

/// Returns the message of a refusal.
#[track_caller]
pub(crate) fn refusal<T: Debug>(result: Result<T, kube::Error>) -> String {
    let error = result.expect_err("this is to be refused");
    let kube::Error::Api(status) = &error else { panic!("{error}") };
    status.message.clone()
}

/// Returns the names and texts of the Events with this reason.
pub(crate) async fn events(space: &TestNamespace, reason: &str) -> Result<Vec<(String, String)>> {
    let events = space.api::<Event>().list(&ListParams::default()).await?;
    let matching = events.items.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
    Ok(matching
        .map(|event| (event.involved_object.name.unwrap_or_default(), event.message.unwrap_or_default()))
        .collect())
}

/// Returns how many reviews of pods the replica was requested.
pub(crate) async fn reviews(replica: &Replica) -> Result<f64> {
    replica.metric_where("nudge_admission_reviews_total", "path=\"/mutate/pods\"").await
}
