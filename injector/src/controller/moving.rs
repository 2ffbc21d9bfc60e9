//! What a rollout must know beyond the config and its pods.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use nudge_protocol::ConfigName;

use super::reconcile::Controller;
use super::{CallError, call};
use crate::api::VersionedConfig;
use crate::world::{ConfigKey, PodState};

/// Nodes that are asked about at one look. Where pods of more nodes are not Ready, the nodes are hardly the reason.
const NODES: usize = 20;

impl Controller {
    /// Nodes that are not Ready, of those whose pods were Ready and are not any more. Asked live: the pod's change may be seen before
    /// the node's.
    pub(super) async fn nodes_away(
        &self,
        config: &VersionedConfig,
        pods: &[Arc<PodState>],
    ) -> Result<BTreeSet<String>, CallError> {
        if config.status.as_ref().is_none_or(|status| status.rollout.stage.is_none()) {
            return Ok(BTreeSet::new());
        }
        let fell = pods.iter().filter(|pod| !pod.ready && pod.was_ready && !pod.going && !pod.finished);
        let nodes: BTreeSet<&String> = fell.map(|pod| &pod.node).filter(|node| !node.is_empty()).collect();
        let api: Api<Node> = Api::all(self.client.clone());
        let mut away = BTreeSet::new();
        for name in nodes.into_iter().take(NODES) {
            let node = call(|| format!("reading Node {name}"), api.get_opt(name)).await?;
            let conditions = node.and_then(|node| node.status?.conditions).unwrap_or_default();
            if !conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True") {
                away.insert(name.clone());
            }
        }
        Ok(away)
    }

    /// Another config that some of these pods use and that is being moved.
    pub(super) fn moving_neighbour(&self, key: &ConfigKey, pods: &[Arc<PodState>]) -> Option<String> {
        let others: BTreeSet<&str> = pods.iter().flat_map(|pod| &pod.configs).map(ConfigName::as_str).collect();
        let moves = |name: &&&str| {
            let config = self.world.config(&ConfigKey::new(key.namespace.clone(), **name));
            config.and_then(|config| config.status.clone()).is_some_and(|status| status.rollout.stage.is_some())
        };
        others.iter().filter(|name| **name != key.name).find(moves).map(|name| (*name).to_owned())
    }
}
