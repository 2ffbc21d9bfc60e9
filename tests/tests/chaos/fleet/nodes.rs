//! Nodes, which are objects only: a controller for each writes whether it is Ready.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use nudge_tests::cluster::TestNamespace;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// The names of the nodes.
pub(crate) const NODES: [&str; 4] = ["node-0", "node-1", "node-2", "node-3"];
/// The time until a failed write is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// The nodes, and whether each is Ready.
pub(crate) struct Nodes {
    ready: BTreeMap<&'static str, watch::Sender<bool>>,
    tasks: Vec<AbortHandle>,
}

impl Nodes {
    pub(crate) async fn start(client: &Client) -> Result<Self> {
        let (mut ready, mut tasks) = (BTreeMap::new(), Vec::new());
        let nodes: Api<Node> = Api::all(client.clone());
        for name in NODES {
            let node: Node = serde_json::from_value(json!({"metadata": {"name": name}}))?;
            nodes.create(&PostParams::default(), &node).await?;
            let (sender, mut wanted) = watch::channel(true);
            let nodes = nodes.clone();
            let controller = async move {
                loop {
                    let now = *wanted.borrow_and_update();
                    while write(&nodes, name, now).await.is_err() {
                        tokio::time::sleep(RETRY_INTERVAL).await;
                    }
                    if wanted.changed().await.is_err() {
                        return;
                    }
                }
            };
            tasks.push(tokio::spawn(controller).abort_handle());
            ready.insert(name, sender);
        }
        Ok(Self { ready, tasks })
    }

    /// Follows whether a node is Ready.
    pub(crate) fn follow(&self, node: &str) -> Option<watch::Receiver<bool>> {
        self.ready.get(node).map(watch::Sender::subscribe)
    }

    /// Sets whether a node is Ready from now on.
    pub(crate) fn set_ready(&self, node: &str, ready: bool) {
        if let Some(node) = self.ready.get(node) {
            node.send_replace(ready);
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

async fn write(nodes: &Api<Node>, name: &str, ready: bool) -> Result<()> {
    let status = if ready { "True" } else { "Unknown" };
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": status, "reason": "Chaos"}]}});
    nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

/// Puts a pod on a node, as the scheduler does.
pub(crate) async fn bind(space: &TestNamespace, pod: &str, node: &str) -> Result<()> {
    let binding = json!({"metadata": {"name": pod}, "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
    space.api::<Pod>().create_subresource::<Value, Value>("binding", pod, &PostParams::default(), &binding).await?;
    Ok(())
}
