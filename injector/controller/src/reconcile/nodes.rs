//! The nodes that are away, among those of pods that were Ready and no longer are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use nudge_api::VersionedConfig;
use nudge_cluster::call::{CallError, call};
use nudge_cluster::listing::for_each_listed;
use nudge_core::keys::ConfigKey;
use nudge_core::pods::{PodState, Readiness};
use nudge_protocol::VersionName;

use crate::controller::Controller;
use crate::failure_cause::FailureCause;
use crate::memory::SideCall;

/// The maximum number of nodes that are read one by one; if there are more, all nodes are listed.
const MAX_NODE_READS: usize = 20;
/// The maximum age of a list of nodes: many fail together, and each of their pods causes a reconcile.
const MAX_LIST_AGE: Duration = Duration::from_secs(2);

fn is_ready(node: Node) -> bool {
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Returns the nodes of pods that were Ready and no longer are, while a version is on trial or pods return from it.
fn nodes_of_fallen<'a>(config: &VersionedConfig, pods: &'a [Arc<PodState>]) -> BTreeSet<&'a String> {
    let Some(status) = config.status.as_ref().filter(|status| status.rollout.stage.is_some()) else {
        return BTreeSet::new();
    };
    let back = status.rollout.is_return();
    let has_returned = |pod: &PodState| {
        let name = config.metadata.name.as_deref().unwrap_or_default();
        back && pod.runs(name).map(VersionName::as_str) == status.current_version.as_deref()
    };
    let is_fallen = |pod: &&Arc<PodState>| matches!(pod.readiness, Readiness::Lost { .. }) && pod.is_live();
    let fallen = pods.iter().filter(is_fallen).filter(|pod| !has_returned(pod));
    let nodes: BTreeSet<&String> = fallen.filter_map(|pod| pod.node.as_ref()).collect();
    // On the way back, nodes that are away matter only when few pods are left.
    if back && nodes.len() > MAX_NODE_READS { BTreeSet::new() } else { nodes }
}

impl Controller {
    /// Returns the nodes that are away. They are read live, since the watch may see the pod's change before the node's.
    /// Returns `None` if they can't be read now; then no harm is judged that a node can have caused. If Nudge may not
    /// read nodes, none counts as away, since a rollback must not wait for that right.
    pub(super) async fn nodes_away(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
        pods: &[Arc<PodState>],
    ) -> Option<BTreeSet<String>> {
        let nodes = nodes_of_fallen(config, pods);
        if nodes.is_empty() {
            self.memories.side_call_succeeded(key, SideCall::Nodes);
            return Some(BTreeSet::new());
        }
        if self.memories.side_call_is_due(key, SideCall::Nodes) {
            match self.read_nodes(nodes).await {
                Ok(away_nodes) => {
                    self.memories.side_call_succeeded(key, SideCall::Nodes);
                    return Some(away_nodes);
                }
                Err(error) => {
                    let message = if error.code() == Some(403) {
                        "nodes can't be read, so pods of a node that is away count against the version"
                    } else {
                        "nodes can't be read, so what became of pods since is not judged"
                    };
                    self.memories.side_call_failed(key, SideCall::Nodes, message, FailureCause::of(&error));
                }
            }
        }
        let is_forbidden = self.memories.get(key, |memory| memory.side_calls.failed_with(SideCall::Nodes, 403));
        is_forbidden.unwrap_or_default().then(BTreeSet::new)
    }

    /// Returns the nodes that are not Ready.
    async fn read_nodes(&self, nodes: BTreeSet<&String>) -> Result<BTreeSet<String>, CallError> {
        let (away_nodes, open): (Vec<&String>, Vec<&String>) = {
            let unready = self.unready_nodes.lock();
            let unready = unready.as_ref().filter(|(listed_at, _)| listed_at.elapsed() < MAX_LIST_AGE);
            nodes.into_iter().partition(|node| unready.is_some_and(|(_, names)| names.contains(*node)))
        };
        let mut away_nodes: BTreeSet<String> = away_nodes.into_iter().cloned().collect();
        if open.len() > MAX_NODE_READS {
            let mut readiness = self.ready_nodes().await?;
            away_nodes
                .extend(open.into_iter().filter(|name| !readiness.get(*name).copied().unwrap_or_default()).cloned());
            readiness.retain(|_, ready| !*ready);
            *self.unready_nodes.lock() = Some((Instant::now(), readiness.into_keys().collect()));
            return Ok(away_nodes);
        }
        let api: Api<Node> = Api::all(self.client.clone());
        for name in open {
            let node = call(|| format!("reading Node {name}"), api.get_opt(name)).await?;
            if !node.is_some_and(is_ready) {
                away_nodes.insert(name.clone());
            }
        }
        Ok(away_nodes)
    }

    /// Returns all nodes, each with whether it is Ready.
    async fn ready_nodes(&self) -> Result<BTreeMap<String, bool>, CallError> {
        let api: Api<Node> = Api::all(self.client.clone());
        let mut readiness = BTreeMap::new();
        let listing = || "listing Nodes".to_owned();
        for_each_listed(listing, &api, ListParams::default(), |node| {
            readiness.insert(node.name_any(), is_ready(node));
        })
        .await?;
        Ok(readiness)
    }
}

#[cfg(test)]
mod tests {
    use nudge_api::{RolloutStage, VersionedConfigSpec, VersionedConfigStatus};
    use serde_json::{Value, json};

    use super::*;
    use crate::fake_api_server::{FakeApiServer, controller_over, status};

    fn node(name: &str) -> Value {
        // Every third one is well.
        let ready = name.trim_start_matches("node-").parse::<u32>().unwrap().is_multiple_of(3);
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "status": {"conditions": [{"type": "Ready", "status": if ready { "True" } else { "Unknown" }}]},
        })
    }

    fn config(stage: RolloutStage) -> VersionedConfig {
        let mut config = VersionedConfig::new("shop", VersionedConfigSpec::default());
        let mut status =
            VersionedConfigStatus { current_version: Some("1".to_owned()), ..VersionedConfigStatus::default() };
        status.rollout.stage = Some(stage);
        config.status = Some(status);
        config
    }

    /// Returns the number of nodes that count as away if pods fell on the given numbers of nodes, and the reads.
    async fn nodes_read(stage: RolloutStage, counts: &[u32]) -> (Vec<usize>, Vec<String>) {
        let server = Arc::<FakeApiServer>::default();
        let client = server.client(|_, path, _| match path.strip_prefix("/api/v1/nodes/") {
            Some(name) => (200, node(name)),
            None => (200, json!({"metadata": {}, "items": (0..40).map(|number| node(&format!("node-{number}"))).collect::<Vec<_>>()})),
        });
        let (controller, config) = (controller_over(client, Arc::default()), config(stage));
        let key = ConfigKey::parse("ns", "shop").unwrap();
        let mut sizes = Vec::new();
        for count in counts {
            let pod = |number| PodState {
                node: Some(format!("node-{number}")),
                readiness: Readiness::Lost { since: 0 },
                ..PodState::default()
            };
            let pods: Vec<Arc<PodState>> = (0..*count).map(pod).map(Arc::new).collect();
            sizes.push(controller.nodes_away(&key, &config, &pods).await.unwrap().len());
        }
        let paths = server.calls.lock().iter().map(|call| call.replace("GET /api/v1/", "")).collect();
        (sizes, paths)
    }

    #[tokio::test]
    async fn no_node_counts_as_away_only_where_nodes_may_not_be_read() {
        for (code, away) in [(403, Some(0)), (401, None), (429, None), (500, None)] {
            let client = Arc::<FakeApiServer>::default().client(move |_, _, _| (code, status(code)));
            let (controller, config) = (controller_over(client, Arc::default()), config(RolloutStage::Moving));
            let key = ConfigKey::parse("ns", "shop").unwrap();
            let pod = PodState {
                node: Some("node-1".to_owned()),
                readiness: Readiness::Lost { since: 0 },
                ..PodState::default()
            };
            for _ in 0..2 {
                let nodes = controller.nodes_away(&key, &config, &[Arc::new(pod.clone())]).await;
                assert_eq!(nodes.map(|nodes| nodes.len()), away, "{code}");
            }
        }
    }

    #[tokio::test]
    async fn a_few_nodes_are_read_and_many_are_listed() {
        let read = async |counts: &[u32]| nodes_read(RolloutStage::Moving, counts).await;
        assert_eq!(read(&[2]).await, (vec![1], vec!["nodes/node-0".to_owned(), "nodes/node-1".to_owned()]));
        // Two of them do not exist.
        assert_eq!(read(&[42]).await, (vec![28], vec!["nodes".to_owned()]));
        // A node that was away is not read again. The others may have failed since.
        let (sizes, paths) = read(&[40, 5]).await;
        assert_eq!((sizes, paths.join(" ").as_str()), (vec![26, 3], "nodes nodes/node-0 nodes/node-3"));
    }

    #[tokio::test]
    async fn no_node_is_listed_on_the_way_back() {
        for stage in [RolloutStage::RollingBack, RolloutStage::Leaving, RolloutStage::Returning] {
            let (sizes, paths) = nodes_read(stage, &[40, 2]).await;
            assert_eq!((sizes, paths.join(" ").as_str()), (vec![0, 1], "nodes/node-0 nodes/node-1"), "{stage:?}");
        }
    }
}
