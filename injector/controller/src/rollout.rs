//! What a rollout must know beyond the config and its pods: nodes that are away, and other configs that are being moved.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use nudge_api::{VersionedConfig, VersionedConfigStatus};
use nudge_cluster::call::{CallError, call};
use nudge_core::identity::Identity;
use nudge_core::keys::ConfigKey;
use nudge_core::pods::{PodState, SlowestProbe};
use nudge_core::rollout::{Neighbours, assigned_version};
use nudge_protocol::ConfigName;
use nudge_protocol::error_chain::chain;

use super::controller::{Away, Controller};

/// Nodes that are read one by one; where there would be more, all are listed.
const NODES: usize = 20;
/// Nodes of a page.
const PAGE: u32 = 200;
/// How long a list of nodes that are away is kept: many fall together, and each of their pods causes a reconcile.
const REMEMBER: Duration = Duration::from_secs(2);

fn is_ready(node: Node) -> bool {
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// No node where the API server forbids to read nodes.
fn if_allowed(error: CallError) -> Result<BTreeSet<String>, CallError> {
    if error.code() != 403 {
        return Err(error);
    }
    tracing::warn!(
        error = chain(&error),
        "reading nodes was forbidden; pods of a node that is away count against the version"
    );
    Ok(BTreeSet::new())
}

/// Whether it is being moved, and holds others up.
fn moves_now(status: &VersionedConfigStatus) -> bool {
    status.rollout.stage.is_some() && !status.rollout.yields
}

impl Controller {
    /// Nodes that are not Ready, among those of pods that were Ready and are not any more. They are read live: the watch may see the pod's change
    /// before the node's. None where Nudge may not read nodes: a rollback must not wait for that.
    pub(super) async fn nodes_away(
        &self,
        config: &VersionedConfig,
        pods: &[Arc<PodState>],
    ) -> Result<BTreeSet<String>, CallError> {
        self.read_nodes(config, pods).await.or_else(if_allowed)
    }

    async fn read_nodes(
        &self,
        config: &VersionedConfig,
        pods: &[Arc<PodState>],
    ) -> Result<BTreeSet<String>, CallError> {
        if config.status.as_ref().is_none_or(|status| status.rollout.stage.is_none()) {
            return Ok(BTreeSet::new());
        }
        let fell = pods.iter().filter(|pod| !pod.ready && pod.was_ready && !pod.terminating && !pod.finished);
        let nodes: BTreeSet<&String> = fell.map(|pod| &pod.node).filter(|node| !node.is_empty()).collect();
        let known = self.away().filter(|known| known.at.elapsed() < REMEMBER).map(|known| known.nodes);
        let (mut away, open): (BTreeSet<String>, Vec<&String>) = {
            let known = |node: &&String| known.as_ref().is_some_and(|known| known.contains(*node));
            let (away, open): (Vec<&String>, _) = nodes.into_iter().partition(known);
            (away.into_iter().cloned().collect(), open)
        };
        if open.len() > NODES {
            let mut all = self.ready_nodes().await?;
            away.extend(open.into_iter().filter(|name| !all.get(*name).copied().unwrap_or_default()).cloned());
            all.retain(|_, ready| !*ready);
            let nodes = all.into_keys().collect();
            self.set_away(Away { at: Instant::now(), nodes: Arc::new(nodes) });
            return Ok(away);
        }
        let api: Api<Node> = Api::all(self.client.clone());
        for name in open {
            let node = call(|| format!("reading Node {name}"), api.get_opt(name)).await?;
            if !node.is_some_and(is_ready) {
                away.insert(name.clone());
            }
        }
        Ok(away)
    }

    /// Which of all nodes are Ready.
    async fn ready_nodes(&self) -> Result<BTreeMap<String, bool>, CallError> {
        let api: Api<Node> = Api::all(self.client.clone());
        let mut params = ListParams::default().limit(PAGE);
        let mut all = BTreeMap::new();
        loop {
            let page = call(|| "listing Nodes".to_owned(), api.list(&params)).await?;
            all.extend(page.items.into_iter().map(|node| (node.name_any(), is_ready(node))));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(all),
            }
        }
    }

    /// What became of other pods on the nodes of those that are not ready, which do not have the target.
    pub(super) fn neighbours(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
        pods: &[Arc<PodState>],
    ) -> HashMap<String, Neighbours> {
        let Some(status) = config.status.as_ref().filter(|status| status.target.is_some()) else {
            return HashMap::new();
        };
        let nodes: BTreeSet<&str> = pods
            .iter()
            .filter(|pod| !pod.containers_ready && !pod.node.is_empty())
            .map(|pod| pod.node.as_str())
            .collect();
        if nodes.is_empty() {
            return HashMap::new();
        }
        let identity = Identity::of(config);
        let target = status.target.as_deref();
        let interval = pods.iter().filter_map(|pod| pod.slowest_probe.as_ref()).map(SlowestProbe::interval).max();
        let recent = Duration::from_secs((interval.unwrap_or(0) + 3).min(60).into());
        let mut all: HashMap<String, Neighbours> = HashMap::new();
        for (pod, fell) in self.index.pods_on(&nodes) {
            let subscribes = pod.namespace == *key.namespace && pod.configs.contains(&key.name);
            if subscribes && assigned_version(status, identity, &pod) == target {
                continue;
            }
            let of = all.entry(pod.node.clone()).or_default();
            of.pods += 1;
            of.harmed += u32::from(fell.is_some_and(|fell| fell.elapsed() < recent));
        }
        all
    }

    /// Another config of some of these pods that is being moved.
    pub(super) fn moving_neighbour(&self, key: &ConfigKey, pods: &[Arc<PodState>]) -> Option<String> {
        let others: BTreeSet<&ConfigName> = pods.iter().flat_map(|pod| &pod.configs).collect();
        let moves = |name: &&&ConfigName| {
            let Some(config) = self.index.config(&ConfigKey::new(&*key.namespace, (**name).clone())) else {
                return false;
            };
            // A config that none of these pods may have moves none of them.
            let shared = |pod: &Arc<PodState>| pod.configs.contains(name) && config.spec.admits(&pod.service_account);
            config.status.as_ref().is_some_and(moves_now) && pods.iter().any(shared)
        };
        others.iter().filter(|name| **name != &key.name).find(moves).map(ToString::to_string)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use hyper::http;
    use kube::Client;
    use kube::client::Body;
    use nudge_api::{RolloutStage, VersionedConfigSpec};
    use nudge_cluster::index::Index;
    use ring::hmac;
    use serde_json::{Value, json};
    use tower::service_fn;

    use super::*;
    use crate::RolloutMetrics;

    fn node(name: &str) -> Value {
        // Every third one is well.
        let ready = name.trim_start_matches("node-").parse::<u32>().unwrap().is_multiple_of(3);
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "status": {"conditions": [{"type": "Ready", "status": if ready { "True" } else { "Unknown" }}]},
        })
    }

    /// How many nodes count as away where pods fell on so many, and what was read.
    async fn nodes_read(counts: &[u32]) -> (Vec<usize>, Vec<String>) {
        let paths = Arc::new(Mutex::new(Vec::new()));
        let requests = Arc::clone(&paths);
        let service = service_fn(move |request: http::Request<Body>| {
            let path = request.uri().path().trim_start_matches("/api/v1/").to_owned();
            let body = match path.strip_prefix("nodes/") {
                Some(name) => node(name),
                None => json!({
                    "apiVersion": "v1", "kind": "NodeList", "metadata": {},
                    "items": (0..40).map(|number| node(&format!("node-{number}"))).collect::<Vec<_>>(),
                }),
            };
            requests.lock().unwrap().push(path);
            async move { Ok::<_, http::Error>(http::Response::new(Body::from(body.to_string().into_bytes()))) }
        });
        let key = Arc::new(hmac::Key::new(hmac::HMAC_SHA256, b"key"));
        let (client, silence) = (Client::new(service, "ns"), Duration::from_mins(1));
        let index = Arc::new(Index::default());
        let controller = Controller::new(client, index, key, "a", silence, RolloutMetrics::default());
        let mut config = VersionedConfig::new("shop", VersionedConfigSpec::default());
        let mut status = VersionedConfigStatus::default();
        status.rollout.stage = Some(RolloutStage::Moving);
        config.status = Some(status);
        let mut sizes = Vec::new();
        for count in counts {
            let pod = |number| PodState { node: format!("node-{number}"), was_ready: true, ..PodState::default() };
            let pods: Vec<Arc<PodState>> = (0..*count).map(pod).map(Arc::new).collect();
            sizes.push(controller.nodes_away(&config, &pods).await.unwrap().len());
        }
        let paths = paths.lock().unwrap().clone();
        (sizes, paths)
    }

    #[test]
    fn no_node_counts_as_away_only_where_nodes_may_not_be_read() {
        let error = |code| {
            let status = kube::core::Status { code, ..kube::core::Status::default() };
            CallError::Api { what: "reading Node a".to_owned(), source: Box::new(kube::Error::Api(Box::new(status))) }
        };
        assert!(if_allowed(error(403)).is_ok_and(|away| away.is_empty()));
        assert!([401, 429, 500].into_iter().all(|code| if_allowed(error(code)).is_err()));
        assert!(if_allowed(CallError::Timeout { what: "reading Node a".to_owned() }).is_err());
    }

    #[tokio::test]
    async fn a_few_nodes_are_read_and_many_are_listed() {
        assert_eq!(nodes_read(&[2]).await, (vec![1], vec!["nodes/node-0".to_owned(), "nodes/node-1".to_owned()]));
        // Two of them do not exist.
        assert_eq!(nodes_read(&[42]).await, (vec![28], vec!["nodes".to_owned()]));
        // A node that was away is not read again. Others are, as they may have fallen since.
        let (sizes, paths) = nodes_read(&[40, 5]).await;
        assert_eq!((sizes, paths.join(" ").as_str()), (vec![26, 3], "nodes nodes/node-0 nodes/node-3"));
    }
}
