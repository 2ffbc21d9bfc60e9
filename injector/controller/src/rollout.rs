//! What a rollout must know beyond the config and its pods: nodes that are away, and other configs that are being moved.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use nudge_api::VersionedConfig;
use nudge_cluster::call::{CallError, call};
use nudge_core::identity::Identity;
use nudge_core::keys::ConfigKey;
use nudge_core::pods::PodState;
use nudge_core::rollout::{JOBS, Millis, Neighbours, assigned_version};
use nudge_protocol::{ConfigName, VersionName};

use super::chores::Chore;
use super::controller::{Away, Controller};
use super::turns::{goes_back, moves_now};

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

/// Whether the pod is to serve for as long as nobody takes it away: when it becomes unready, something befell it.
fn serves(pod: &PodState) -> bool {
    !(pod.finished || pod.ending || pod.terminating || pod.disrupted || pod.workload == JOBS)
}

/// The nodes of pods that were Ready and are not any more, while a version is on trial or on its way back.
fn nodes_of_fallen<'a>(config: &VersionedConfig, pods: &'a [Arc<PodState>]) -> BTreeSet<&'a String> {
    let Some(status) = config.status.as_ref().filter(|status| status.rollout.stage.is_some()) else {
        return BTreeSet::new();
    };
    let back = goes_back(status);
    let returned = |pod: &PodState| {
        let name = config.metadata.name.as_deref().unwrap_or_default();
        back && pod.runs(name).map(VersionName::as_str) == status.current_version.as_deref()
    };
    let fell = pods.iter().filter(|pod| !pod.ready && pod.was_ready && !pod.terminating && !pod.finished);
    let fell = fell.filter(|pod| !returned(pod));
    let nodes: BTreeSet<&String> = fell.map(|pod| &pod.node).filter(|node| !node.is_empty()).collect();
    // On the way back there is enough to wait for. Nodes that are away are looked for once few pods are left.
    if back && nodes.len() > NODES { BTreeSet::new() } else { nodes }
}

/// Configs that have a target, by namespace and name, with their identities; `None` for those that have none.
type Trials<'a> = HashMap<(&'a str, &'a ConfigName), Option<(Identity, Arc<VersionedConfig>)>>;

impl Controller {
    /// Nodes that are not Ready, among those of pods that were Ready and are not any more. They are read live: the watch may see the pod's change
    /// before the node's. `None` where they can't be read now: then nothing is judged that a node can have caused. Where Nudge may not read
    /// nodes, none is away: a rollback must not wait for that.
    pub(super) async fn nodes_away(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
        pods: &[Arc<PodState>],
    ) -> Option<BTreeSet<String>> {
        let nodes = nodes_of_fallen(config, pods);
        if nodes.is_empty() {
            self.chore_succeeded(key, Chore::Nodes);
            return Some(BTreeSet::new());
        }
        if self.chore_is_due(key, Chore::Nodes) {
            match self.read_nodes(nodes).await {
                Ok(away) => {
                    self.chore_succeeded(key, Chore::Nodes);
                    return Some(away);
                }
                Err(error) => {
                    let what = if error.code() == 403 {
                        "nodes can't be read, so pods of a node that is away count against the version"
                    } else {
                        "nodes can't be read, so nothing is judged that became of pods since"
                    };
                    self.chore_failed(key, Chore::Nodes, what, &error, true);
                }
            }
        }
        let code = self.memories.known(key, |memory| memory.chores.code(Chore::Nodes)).flatten();
        (code == Some(403)).then(BTreeSet::new)
    }

    /// Those of these nodes that are not Ready.
    async fn read_nodes(&self, nodes: BTreeSet<&String>) -> Result<BTreeSet<String>, CallError> {
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

    /// When other pods fell on the nodes of those that are not ready. A pod with a version on trial falls because of that, perhaps, and
    /// excuses nothing.
    pub(super) fn neighbours(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
        pods: &[Arc<PodState>],
    ) -> HashMap<String, Neighbours> {
        if config.status.as_ref().is_none_or(|status| status.target_version.is_none()) {
            return HashMap::new();
        }
        let fell = pods.iter().filter(|pod| !pod.containers_ready && serves(pod));
        let nodes: BTreeSet<&str> = fell.map(|pod| pod.node.as_str()).filter(|node| !node.is_empty()).collect();
        let mut all: HashMap<String, BTreeMap<String, Vec<Option<Millis>>>> = HashMap::new();
        let there = self.index.pods_on(&nodes);
        let mut trials = Trials::new();
        for (pod, fell) in &there {
            if serves(pod) && !self.is_on_trial(pod, &mut trials) {
                let namespaces = all.entry(pod.node.clone()).or_default();
                let times = namespaces.entry(pod.namespace.clone()).or_default();
                times.push(fell.and_then(|fell| self.steady_at(fell)));
            }
        }
        let neighbours = |mut namespaces: BTreeMap<String, Vec<_>>| {
            let own = namespaces.remove(&*key.namespace).unwrap_or_default();
            Neighbours { own, others: namespaces.into_values().collect() }
        };
        all.into_iter().map(|(node, namespaces)| (node, neighbours(namespaces))).collect()
    }

    /// Whether the pod has the target of one of its configs, or should have it.
    fn is_on_trial<'a>(&self, pod: &'a PodState, trials: &mut Trials<'a>) -> bool {
        pod.configs.iter().any(|name| {
            let trial = trials.entry((&pod.namespace, name)).or_insert_with(|| {
                let config = self.index.config(&ConfigKey::new(&*pod.namespace, name.clone()))?;
                config.status.as_ref()?.target_version.as_ref()?;
                Some((Identity::of(&config), config))
            });
            let Some((identity, config)) = trial else { return false };
            let Some(status) = &config.status else { return false };
            let target = status.target_version.as_deref();
            pod.runs(name.as_str()).map(VersionName::as_str) == target
                || assigned_version(status, *identity, pod) == target
        })
    }

    /// Another config of some of these pods that is being moved.
    pub(super) fn moving_neighbour(&self, key: &ConfigKey, pods: &[Arc<PodState>]) -> Option<ConfigKey> {
        // Most pods use one config, or the same ones as others.
        let shared = pods.iter().filter(|pod| pod.configs.len() > 1);
        let used: HashSet<(&[ConfigName], &str)> = shared.map(|pod| (&*pod.configs, &*pod.service_account)).collect();
        let mut others: BTreeMap<&ConfigName, Vec<&str>> = BTreeMap::new();
        for (names, account) in used {
            names
                .iter()
                .filter(|name| **name != key.name)
                .for_each(|name| others.entry(name).or_default().push(account));
        }
        let others = others.into_iter().map(|(name, by)| (ConfigKey::new(&*key.namespace, name.clone()), by));
        let mut moving = others.filter(|(other, accounts)| {
            let Some(config) = self.index.config(other) else { return false };
            // A config that none of these pods may have moves none of them.
            config.status.as_ref().is_some_and(moves_now) && accounts.iter().any(|account| config.spec.admits(account))
        });
        moving.next().map(|(other, _)| other)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use hyper::http;
    use kube::Client;
    use kube::client::Body;
    use nudge_api::{RolloutStage, VersionedConfigSpec, VersionedConfigStatus};
    use nudge_cluster::index::Index;
    use nudge_core::keys::PodUid;
    use nudge_core::rollout::ALL;
    use ring::hmac;
    use serde_json::{Value, json};
    use tower::service_fn;

    use super::*;
    use crate::RolloutMetrics;
    use crate::controller::tests::blind;

    fn node(name: &str) -> Value {
        // Every third one is well.
        let ready = name.trim_start_matches("node-").parse::<u32>().unwrap().is_multiple_of(3);
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "status": {"conditions": [{"type": "Ready", "status": if ready { "True" } else { "Unknown" }}]},
        })
    }

    /// A controller whose API server answers so, and a config in this stage.
    fn scene<S>(service: S, stage: RolloutStage) -> (Controller, VersionedConfig)
    where
        S: tower::Service<http::Request<Body>, Response = http::Response<Body>, Error = http::Error>
            + Clone
            + Send
            + 'static,
        S::Future: Send,
    {
        let key = Arc::new(hmac::Key::new(hmac::HMAC_SHA256, b"key"));
        let (client, silence) = (Client::new(service, "ns"), Duration::from_mins(1));
        let index = Arc::new(Index::default());
        let controller = Controller::new(client, index, key, "a", silence, RolloutMetrics::default());
        let mut config = VersionedConfig::new("shop", VersionedConfigSpec::default());
        let mut status =
            VersionedConfigStatus { current_version: Some("1".to_owned()), ..VersionedConfigStatus::default() };
        status.rollout.stage = Some(stage);
        config.status = Some(status);
        (controller, config)
    }

    /// How many nodes count as away where pods fell on so many, and what was read.
    async fn nodes_read(stage: RolloutStage, counts: &[u32]) -> (Vec<usize>, Vec<String>) {
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
        let (controller, config) = scene(service, stage);
        let key = ConfigKey::parse("ns", "shop").unwrap();
        let mut sizes = Vec::new();
        for count in counts {
            let pod = |number| PodState { node: format!("node-{number}"), was_ready: true, ..PodState::default() };
            let pods: Vec<Arc<PodState>> = (0..*count).map(pod).map(Arc::new).collect();
            sizes.push(controller.nodes_away(&key, &config, &pods).await.unwrap().len());
        }
        let paths = paths.lock().unwrap().clone();
        (sizes, paths)
    }

    fn pod(namespace: &str, config: &str) -> PodState {
        PodState {
            namespace: namespace.to_owned(),
            name: "other".to_owned(),
            uid: PodUid::new("other").unwrap(),
            configs: vec![ConfigName::new(config).unwrap()],
            ..PodState::default()
        }
    }

    /// What fell with `web` on its node, where another pod fell that is like this.
    fn fell_with_web(other: &PodState) -> Neighbours {
        let index = Arc::new(Index::default());
        index.set_enabled(["ns".to_owned(), "foreign".to_owned()].into());
        let controller = blind(Arc::clone(&index));
        for (name, moved) in [("shop", true), ("tried", true), ("still", false)] {
            let config = json!({
                "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig",
                "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"}, "spec": {},
                "status": {"currentVersion": "1", "targetVersion": moved.then_some("2"),
                    "rollout": {"stage": moved.then_some("Moving")}, "internal": {"threshold": if moved { ALL } else { 0 }}},
            });
            index.put_config(serde_json::from_value(config).unwrap());
        }
        let web = PodState { name: "web".to_owned(), uid: PodUid::new("web").unwrap(), ..pod("ns", "shop") };
        for ready in [true, false] {
            for pod in [web.clone(), other.clone()] {
                index.put_pod(PodState { node: "node".to_owned(), containers_ready: ready, ..pod });
            }
        }
        let key = ConfigKey::parse("ns", "shop").unwrap();
        let mut all = controller.neighbours(&key, &index.config(&key).unwrap(), &index.subscribers(&key));
        all.remove("node").unwrap_or_default()
    }

    #[tokio::test]
    async fn a_neighbour_is_a_pod_that_serves_and_has_no_version_on_trial() {
        let other = || pod("ns", "still");
        let own = fell_with_web(&other());
        assert!(own.own.len() == 1 && own.own[0].is_some() && own.others.is_empty(), "{own:?}");
        let foreign = fell_with_web(&pod("foreign", "still"));
        assert!(foreign.own.is_empty() && foreign.others.len() == 1 && foreign.others[0].len() == 1, "{foreign:?}");
        for pod in [
            pod("ns", "tried"),
            PodState { workload: JOBS.to_owned(), ..other() },
            PodState { finished: true, ..other() },
            PodState { ending: true, ..other() },
            PodState { terminating: true, ..other() },
            PodState { disrupted: true, ..other() },
        ] {
            let nobody = fell_with_web(&pod);
            assert_eq!(nobody, Neighbours::default(), "{pod:?}");
        }
    }

    #[tokio::test]
    async fn no_node_counts_as_away_only_where_nodes_may_not_be_read() {
        for (code, away) in [(403, Some(0)), (401, None), (429, None), (500, None)] {
            let service = service_fn(move |_: http::Request<Body>| async move {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code});
                http::Response::builder().status(code).body(Body::from(status.to_string().into_bytes()))
            });
            let (controller, config) = scene(service, RolloutStage::Moving);
            let key = ConfigKey::parse("ns", "shop").unwrap();
            let pod = PodState { node: "node-1".to_owned(), was_ready: true, ..PodState::default() };
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
        // A node that was away is not read again. Others are, as they may have fallen since.
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
