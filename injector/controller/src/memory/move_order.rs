//! The order of the moves of a namespace's configs. Only configs of one namespace share pods, so only one config of a
//! namespace begins at a time. A config that shares pods with a moving config waits for the end of that move.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use nudge_cluster::index::Index;
use nudge_cluster::queue::Queue;
use nudge_core::followed_objects::BEGINNING_INTERVAL;
use nudge_core::keys::ConfigKey;
use nudge_core::rollout::blocks_others;
use parking_lot::Mutex;

/// The configs that may begin to move, and those that wait. Nothing blocks: a config that has to wait comes back into
/// the queue.
pub(crate) struct MoveOrder {
    index: Arc<Index>,
    queue: Arc<Queue>,
    /// The namespaces whose right to begin a move is free, each with the configs that wait for the right.
    rights: Mutex<HashMap<String, BTreeSet<ConfigKey>>>,
    /// The configs that wait for one that is being moved, and the generation of its spec then.
    waiting: Mutex<HashMap<ConfigKey, BTreeMap<ConfigKey, Option<i64>>>>,
}

/// The right to begin a move in a namespace, until it is dropped.
pub(crate) struct MoveRight<'a> {
    order: &'a MoveOrder,
    namespace: String,
}

impl Drop for MoveRight<'_> {
    fn drop(&mut self) {
        let waiting = self.order.rights.lock().remove(&self.namespace);
        waiting.into_iter().flatten().for_each(|key| self.order.queue.add(key, Duration::ZERO));
    }
}

impl MoveOrder {
    pub(crate) fn new(index: Arc<Index>, queue: Arc<Queue>) -> Self {
        Self { index, queue, rights: Mutex::default(), waiting: Mutex::default() }
    }

    /// Returns the right to begin a move in the config's namespace; `None` while another config has it.
    pub(crate) fn begin(&self, key: &ConfigKey) -> Option<MoveRight<'_>> {
        match self.rights.lock().entry(key.namespace.clone()) {
            Entry::Occupied(mut waiting) => {
                waiting.get_mut().insert(key.clone());
                None
            }
            Entry::Vacant(free) => {
                free.insert(BTreeSet::new());
                Some(MoveRight { order: self, namespace: key.namespace.clone() })
            }
        }
    }

    /// Queues the config when the other config, which shares pods with it, is no longer being moved, or has another
    /// spec. Returns when to look again if the other is not being moved, but about to be.
    pub(crate) fn wait_for(&self, key: &ConfigKey, other: &ConfigKey) -> Option<Duration> {
        let config = self.index.config(other).filter(|config| config.status.as_ref().is_some_and(blocks_others));
        let Some(config) = config else { return Some(BEGINNING_INTERVAL) };
        self.waiting.lock().entry(other.clone()).or_default().insert(key.clone(), config.metadata.generation);
        // The move may have ended before the config waited.
        self.queue_waiting(other);
        None
    }

    /// Queues the configs that have waited for this change of the config.
    pub(crate) fn queue_waiting(&self, key: &ConfigKey) {
        let mut waiting = self.waiting.lock();
        let Some(others) = waiting.get_mut(key) else { return };
        let config = self.index.config(key);
        let moves = config.as_ref().is_some_and(|config| config.status.as_ref().is_some_and(blocks_others));
        let generation = config.and_then(|config| config.metadata.generation);
        let free = others.extract_if(.., |_, known| !moves || *known != generation);
        let free: Vec<ConfigKey> = free.map(|(key, _)| key).collect();
        if others.is_empty() {
            waiting.remove(key);
        }
        drop(waiting);
        for key in free {
            self.queue.add(key, Duration::ZERO);
        }
    }

    /// Forgets all configs that wait.
    pub(crate) fn forget(&self) {
        self.waiting.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn move_order(index: Arc<Index>) -> MoveOrder {
        MoveOrder::new(index, Arc::default())
    }

    #[test]
    fn a_namespace_waits_for_no_other_and_keeps_no_worker() {
        let order = move_order(Arc::default());
        let key = |namespace: &str, name: &str| ConfigKey::parse(namespace, name).unwrap();
        let right = order.begin(&key("a", "one")).unwrap();
        assert!(order.begin(&key("a", "two")).is_none() && order.begin(&key("a", "three")).is_none());
        assert!(order.begin(&key("b", "one")).is_some());
        assert!(order.queue.is_empty());
        drop(right);
        assert_eq!(order.queue.len(), 2, "both come back");
        assert!(order.begin(&key("a", "two")).is_some());
        assert!(order.rights.lock().is_empty(), "nothing is kept of namespaces in which nobody begins");
    }

    #[test]
    fn who_waits_for_another_config_is_woken_by_it() {
        let index = Arc::new(Index::default());
        index.set_enabled(["ns".to_owned()].into());
        let order = move_order(Arc::clone(&index));
        let (shop, keys) = (ConfigKey::parse("ns", "shop").unwrap(), ConfigKey::parse("ns", "keys").unwrap());
        let mut version = 0;
        let mut put = |stage: Option<&str>, yields: bool, generation: i64| {
            version += 1;
            let config = json!({
                "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "spec": {},
                "metadata": {"name": "keys", "namespace": "ns", "uid": "u", "resourceVersion": version.to_string(), "generation": generation},
                "status": {"currentVersion": "1", "targetVersion": "2", "rollout": {"stage": stage}, "internal": {"yields": yields}},
            });
            index.put_config(serde_json::from_value(config).unwrap());
            order.queue_waiting(&keys);
        };
        let woken = || {
            let woken = order.queue.len() == 1;
            order.queue.clear();
            woken
        };
        for (stage, yields, generation, wakes) in [
            (Some("Moving"), false, 1, false),
            (Some("Baking"), false, 1, false),
            (Some("Baking"), false, 2, true),
            (Some("Baking"), true, 1, true),
            (None, false, 1, true),
        ] {
            put(Some("Moving"), false, 1);
            assert_eq!(order.wait_for(&shop, &keys), None);
            assert!(!woken());
            put(stage, yields, generation);
            assert_eq!(woken(), wakes, "{stage:?} {yields} {generation}");
        }
        assert!(order.waiting.lock().is_empty());
        assert_eq!(order.wait_for(&shop, &keys), Some(BEGINNING_INTERVAL), "it has ended before, or not begun");
        put(Some("Moving"), false, 1);
        assert_eq!(order.wait_for(&shop, &keys), None);
        index.remove_config(&keys);
        order.queue_waiting(&keys);
        assert!(woken());
    }
}
