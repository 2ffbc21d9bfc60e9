//! A workload without an agent, in addition to the subscribers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use nudge_api::VersionedConfig;
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::bind;
use nudge_tests::eventually;
use serde_json::json;

use super::rollout_under_test::WAIT_TIMEOUT;
use crate::kubelet::Kubelet;

/// A Deployment that reads the published ConfigMap of the config `shop` without an agent. The cluster needs the
/// controllers of workloads.
pub(super) struct Plain {
    comes_up: Arc<AtomicBool>,
    _kubelet: Kubelet,
}

impl Plain {
    pub(super) async fn start(space: &TestNamespace) -> Result<Self> {
        bind(space, "nudge-restart").await?;
        space.create_object::<ConfigMap>(json!({"metadata": {"name": "shop"}, "data": {"number": "0"}})).await?;
        let objects = Patch::Merge(json!({"spec": {"objects": ["ConfigMap"]}}));
        space.api::<VersionedConfig>().patch("shop", &PatchParams::default(), &objects).await?;
        let published = |config: &VersionedConfig| {
            config.status.as_ref().is_some_and(|status| status.published_version == status.current_version)
        };
        space.object_until(WAIT_TIMEOUT, "shop", "it is published", published).await?;
        let container = json!({"name": "app", "image": "test", "envFrom": [{"configMapRef": {"name": "shop"}}]});
        let spec = json!({"automountServiceAccountToken": false, "containers": [container]});
        let template = json!({"metadata": {"labels": {"app": "plain"}}, "spec": spec});
        let spec = json!({"replicas": 1, "selector": {"matchLabels": {"app": "plain"}}, "template": template});
        space.create_object::<Deployment>(json!({"metadata": {"name": "plain"}, "spec": spec})).await?;
        let comes_up = Arc::new(AtomicBool::new(true));
        let ready = Arc::clone(&comes_up);
        let kubelet = Kubelet::start(space, move |pod| {
            pod.labels().get("app").is_some_and(|app| app == "plain") && ready.load(Ordering::Relaxed)
        });
        // One that was not well before is not waited for.
        let deployments = space.api::<Deployment>();
        eventually(WAIT_TIMEOUT, "the Deployment is well", async || {
            deployments.get("plain").await.ok()?.status?.available_replicas.filter(|&available| available == 1)
        })
        .await?;
        Ok(Self { comes_up, _kubelet: kubelet })
    }

    /// Whether its new pods come up.
    pub(super) fn comes_up(&self, ready: bool) {
        self.comes_up.store(ready, Ordering::Relaxed);
    }
}
