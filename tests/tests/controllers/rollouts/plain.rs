//! A workload without an agent beside the subscribers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use nudge_tests::cluster::Space;
use nudge_tests::cluster::installation::bind;
use nudge_tests::eventually;
use serde_json::json;
use tokio::task::JoinHandle;

use super::rollout_under_test::LONG;

/// A Deployment that reads the published ConfigMap without an agent. This test stands for its controller and its pods.
pub(super) struct Plain {
    comes_up: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Plain {
    pub(super) async fn start(space: &Space) -> Result<Self> {
        bind(space, "nudge-restart").await?;
        space.create_object::<ConfigMap>(json!({"metadata": {"name": "shop"}, "data": {"number": "0"}})).await?;
        let container = json!({"name": "app", "image": "test", "envFrom": [{"configMapRef": {"name": "shop"}}]});
        let template = json!({"metadata": {"labels": {"app": "plain"}}, "spec": {"containers": [container]}});
        let spec = json!({"replicas": 1, "selector": {"matchLabels": {"app": "plain"}}, "template": template});
        space.create_object::<Deployment>(json!({"metadata": {"name": "plain"}, "spec": spec})).await?;
        let comes_up = Arc::new(AtomicBool::new(true));
        let (api, ready) = (space.api::<Deployment>(), comes_up.clone());
        let task = tokio::spawn(async move {
            let mut turns = tokio::time::interval(Duration::from_millis(100));
            loop {
                turns.tick().await;
                let Ok(object) = api.get("plain").await else { continue };
                let seen = object.status.and_then(|status| status.observed_generation);
                if ready.load(Ordering::Relaxed) && seen != object.metadata.generation {
                    let status = json!({"status": {
                        "observedGeneration": object.metadata.generation, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1,
                        "availableReplicas": 1, "conditions": [{"type": "Available", "status": "True"}],
                    }});
                    // It is tried again at the next turn.
                    let _ = api.patch_status("plain", &PatchParams::default(), &Patch::Merge(status)).await;
                }
            }
        });
        // One that was not well before is not waited for.
        let deployments = space.api::<Deployment>();
        eventually(LONG, "the Deployment is well", async || {
            deployments.get("plain").await.ok()?.status?.available_replicas.filter(|&available| available == 1)
        })
        .await?;
        Ok(Self { comes_up, task })
    }

    /// Whether its pods come up.
    pub(super) fn comes_up(&self, ready: bool) {
        self.comes_up.store(ready, Ordering::Relaxed);
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        self.task.abort();
    }
}
