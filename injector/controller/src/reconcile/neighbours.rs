//! Other pods on the nodes of a config's pods, and other configs of these pods that are moved first.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use nudge_api::VersionedConfig;
use nudge_core::config::may_begin;
use nudge_core::followed_objects::{NeighbourConfig, text_to_go_first};
use nudge_core::identity::Identity;
use nudge_core::keys::ConfigKey;
use nudge_core::pods::{PodState, Removal};
use nudge_core::rollout::{Neighbours, SteadyTime, assigned_version, blocks_others};
use nudge_protocol::{ConfigName, VersionName};

use crate::controller::Controller;

/// Returns whether the pod should serve until it is deleted, so that unreadiness means a fault.
fn serves(pod: &PodState) -> bool {
    !(pod.is_finished() || pod.is_ending() || pod.removal != Removal::None || pod.is_of_job())
}

/// Configs that have a target, by namespace and name, with their identities; `None` for those that have none.
type Trials<'a> = HashMap<(&'a str, &'a ConfigName), Option<(Identity, Arc<VersionedConfig>)>>;

impl Controller {
    /// Returns when other pods became unready on the nodes of pods that are not ready. A pod with a version on trial
    /// may have become unready because of that version, and excuses nothing.
    pub(super) fn neighbours(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
        pods: &[Arc<PodState>],
    ) -> HashMap<String, Neighbours> {
        if config.status.as_ref().is_none_or(|status| status.target_version.is_none()) {
            return HashMap::new();
        }
        let unready = pods.iter().filter(|pod| !pod.containers_ready && serves(pod));
        let nodes: BTreeSet<&str> = unready.filter_map(|pod| pod.node.as_deref()).collect();
        let mut fall_times: HashMap<String, BTreeMap<String, Vec<Option<SteadyTime>>>> = HashMap::new();
        let mut trials = Trials::new();
        let pods = self.index.pods_on(&nodes);
        for (pod, fell) in &pods {
            if let Some(node) = &pod.node
                && serves(pod)
                && !self.is_on_trial(pod, &mut trials)
            {
                let namespaces = fall_times.entry(node.clone()).or_default();
                let times = namespaces.entry(pod.namespace.clone()).or_default();
                times.push(fell.and_then(|fell| self.steady_at(fell)));
            }
        }
        let neighbours = |mut namespaces: BTreeMap<String, Vec<_>>| {
            let own = namespaces.remove(&*key.namespace).unwrap_or_default();
            Neighbours { own, others: namespaces.into_values().collect() }
        };
        fall_times.into_iter().map(|(node, namespaces)| (node, neighbours(namespaces))).collect()
    }

    /// Returns whether the pod has the target of one of its configs, or should have it.
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

    /// Returns another config of some of these pods that is being moved, or is about to be moved before this one.
    pub(super) fn config_to_go_first(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
        pods: &[Arc<PodState>],
    ) -> Option<ConfigKey> {
        // Most pods use one config, or the same configs as other pods.
        let shared = pods.iter().filter(|pod| pod.configs.len() > 1);
        let users: HashSet<(&[ConfigName], &str)> = shared.map(|pod| (&*pod.configs, &*pod.service_account)).collect();
        // The accounts of the pods that have the other config, and whether all of them name it first.
        let mut others: BTreeMap<&ConfigName, (Vec<&str>, bool)> = BTreeMap::new();
        for (names, account) in users {
            let own_position = names.iter().position(|name| *name == key.name);
            for (position, name) in names.iter().enumerate().filter(|(_, name)| **name != key.name) {
                let (accounts, is_named_first) = others.entry(name).or_insert_with(|| (Vec::new(), true));
                accounts.push(account);
                *is_named_first &= own_position.is_some_and(|own| position < own);
            }
        }
        let is_beginning = may_begin(config);
        let other_key = |name: &ConfigName| ConfigKey::new(&*key.namespace, name.clone());
        let mut neighbours = Vec::new();
        for (name, (accounts, is_named_first)) in others {
            let other = other_key(name);
            let Some(config) = self.index.config(&other) else { continue };
            // A config that admits none of these pods moves none of them.
            if !accounts.iter().any(|account| config.spec.admits(account)) {
                continue;
            }
            if config.status.as_ref().is_some_and(blocks_others) {
                return Some(other);
            }
            if is_beginning {
                let settle_time = self.memories.get(&other, |memory| memory.text.unrecorded_settle_time()).flatten();
                neighbours.push(NeighbourConfig { name: name.clone(), config, settle_time, is_named_first });
            }
        }
        text_to_go_first(config, &neighbours, Timestamp::now()).map(other_key)
    }
}

#[cfg(test)]
mod tests {
    use nudge_cluster::index::Index;
    use nudge_core::keys::PodUid;
    use nudge_core::owners::WorkloadId;
    use nudge_core::pods::PodPhase;
    use nudge_core::rollout::ALL;
    use nudge_protocol::ContainerName;
    use nudge_protocol::hub::PodContainer;
    use serde_json::json;

    use super::*;
    use crate::fake_api_server::blind;

    fn pod(namespace: &str, config: &str) -> PodState {
        PodState {
            namespace: namespace.to_owned(),
            name: "other".to_owned(),
            uid: PodUid::new("other").unwrap(),
            configs: vec![ConfigName::new(config).unwrap()],
            ..PodState::default()
        }
    }

    /// Returns the pods that fell with `web` on its node, after `other` fell, too.
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
                index.put_pod(PodState { node: Some("node".to_owned()), containers_ready: ready, ..pod });
            }
        }
        let key = ConfigKey::parse("ns", "shop").unwrap();
        let mut all = controller.neighbours(&key, &index.config(&key).unwrap(), &index.subscribers(&key));
        all.remove("node").unwrap_or_default()
    }

    #[tokio::test]
    async fn a_neighbour_is_a_pod_that_serves_and_has_no_version_on_trial() {
        let container = PodContainer { name: ContainerName::new("app").unwrap(), id: String::new(), ended: true };
        let other = || pod("ns", "still");
        let own = fell_with_web(&other());
        assert!(own.own.len() == 1 && own.own[0].is_some() && own.others.is_empty(), "{own:?}");
        let foreign = fell_with_web(&pod("foreign", "still"));
        assert!(foreign.own.is_empty() && foreign.others.len() == 1 && foreign.others[0].len() == 1, "{foreign:?}");
        for pod in [
            pod("ns", "tried"),
            PodState { workload: Some(WorkloadId::jobs()), ..other() },
            PodState { phase: PodPhase::Finished, ..other() },
            PodState { containers: vec![container], ..other() },
            PodState { removal: Removal::Terminating, ..other() },
            PodState { removal: Removal::Disrupted, ..other() },
        ] {
            let nobody = fell_with_web(&pod);
            assert_eq!(nobody, Neighbours::default(), "{pod:?}");
        }
    }

    #[tokio::test]
    async fn texts_that_change_together_go_in_the_order_of_the_pods_that_agree() {
        let index = Arc::new(Index::default());
        index.set_enabled(["ns".to_owned()].into());
        let controller = blind(Arc::clone(&index));
        for name in ["a", "b", "c"] {
            let settle_time = Timestamp::now().to_string();
            index.put_config(
                serde_json::from_value(json!({
                    "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "spec": {"objects": ["ConfigMap"]},
                    "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"},
                    "status": {"currentVersion": "1", "internal": {"text": {"version": "2", "settleTime": settle_time}}},
                }))
                .unwrap(),
            );
        }
        let put_pod = |uid: &str, names: &[&str]| {
            let configs = names.iter().map(|name| ConfigName::new(name).unwrap()).collect();
            index.put_pod(PodState { uid: PodUid::new(uid).unwrap(), name: uid.to_owned(), configs, ..pod("ns", "a") });
        };
        let goes_first = |name: &str| {
            let key = ConfigKey::parse("ns", name).unwrap();
            let config = index.config(&key).unwrap();
            let other = controller.config_to_go_first(&key, &config, &index.subscribers(&key));
            other.map(|other| other.name.to_string())
        };
        put_pod("one", &["c", "b", "a"]);
        assert_eq!(["c", "b", "a"].map(goes_first), [None, Some("c".to_owned()), Some("b".to_owned())]);
        put_pod("two", &["a", "b"]);
        assert_eq!(["c", "b", "a"].map(goes_first), [None, Some("c".to_owned()), Some("c".to_owned())]);
    }
}
