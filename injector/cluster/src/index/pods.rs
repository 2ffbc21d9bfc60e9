//! Pods with an agent, and who is woken by their changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use nudge_core::keys::{ConfigKey, PodKey};
use nudge_core::pods::{PodState, ReportState};
use tokio::sync::watch;

use super::pod_entry::PodEntry;
use super::space::Space;
use super::{Index, IndexEvent, Kind};

impl Index {
    /// The pod.
    pub fn pod(&self, key: &PodKey) -> Option<PodEntry> {
        self.lock().spaces.get(&key.namespace)?.pods.get(key).cloned()
    }

    /// Changes with every new pod or service account, and with every namespace that becomes complete.
    pub fn pod_added(&self) -> watch::Receiver<()> {
        self.pod_added.subscribe()
    }

    /// The pods that use the config and may have it, by name: nothing is assigned to others, and nothing waits for them.
    pub fn subscribers(&self, key: &ConfigKey) -> Vec<Arc<PodState>> {
        let inner = self.lock();
        let Some(space) = inner.spaces.get(&key.namespace) else { return Vec::new() };
        let config = space.configs.get(key);
        let pods = space.users(key);
        let admitted =
            pods.filter(|entry| config.is_none_or(|kept| kept.config.spec.admits(&entry.state.service_account)));
        admitted.map(|entry| Arc::clone(&entry.state)).collect()
    }

    /// How many pods use the config.
    pub fn count_users(&self, key: &ConfigKey) -> usize {
        self.lock().spaces.get(&key.namespace).map_or(0, |space| space.pods_by_config.get(key).map_or(0, BTreeMap::len))
    }

    /// All pods that use the config, whether they may have it or not: one that may not any more still has what it was given. `None` while
    /// pods of the namespace are left out.
    pub fn users(&self, key: &ConfigKey) -> Option<Vec<Arc<PodState>>> {
        let inner = self.lock();
        let Some(space) = inner.spaces.get(&key.namespace) else { return Some(Vec::new()) };
        if space.unkept.count(Kind::Pods) > 0 {
            return None;
        }
        Some(space.users(key).map(|entry| Arc::clone(&entry.state)).collect())
    }

    /// The configs that pods use.
    pub fn subscribed(&self) -> Vec<ConfigKey> {
        self.lock().spaces.values().flat_map(|space| space.pods_by_config.keys().cloned()).collect()
    }

    /// All pods.
    pub fn pods(&self) -> Vec<Arc<PodState>> {
        let inner = self.lock();
        let pods = inner.spaces.values().flat_map(|space| space.pods.values());
        pods.map(|entry| Arc::clone(&entry.state)).collect()
    }

    /// The pods on these nodes, and when the containers of each last became unready or restarted.
    pub fn pods_on(&self, nodes: &BTreeSet<&str>) -> Vec<(Arc<PodState>, Option<Instant>)> {
        let inner = self.lock();
        let there = |space: &Space, node: &&str| {
            let keys = space.pods_by_node.get(*node).into_iter().flatten();
            let pods = keys.filter_map(|key| space.pods.get(key));
            pods.map(|entry| (Arc::clone(&entry.state), entry.fell)).collect::<Vec<_>>()
        };
        inner.spaces.values().flat_map(|space| nodes.iter().flat_map(|node| there(space, node))).collect()
    }

    /// When the report of any pod, or of any in this namespace, was last seen to change.
    pub fn reported(&self, namespace: Option<&str>) -> Option<Instant> {
        let inner = self.lock();
        match namespace {
            Some(namespace) => inner.spaces.get(namespace)?.reported,
            None => inner.spaces.values().filter_map(|space| space.reported).max(),
        }
    }

    /// Adds a pod, or replaces it.
    pub fn put_pod(&self, state: PodState) {
        let key = state.key();
        let (state, configs, is_new, harmed) = {
            let mut inner = self.lock();
            let Some(space) = inner.spaces.get_mut(&key.namespace) else { return };
            let same = space.pods.get(&key).filter(|entry| entry.state.uid == state.uid);
            let state = Arc::new(if let Some(same) = same { state.after(&same.state) } else { state });
            if let Some(entry) = space.pods.get(&key).filter(|entry| entry.state == state) {
                // Nothing that matters has changed but the resourceVersion.
                let entry = PodEntry { state, ..entry.clone() };
                return space.keep_pod(key, entry);
            }
            let known = space.pods.contains_key(&key);
            if !space.takes(Kind::Pods, &key.namespace, &key.name, known) {
                return;
            }
            let before = space.pods.get(&key);
            let same = before.filter(|entry| entry.state.uid == state.uid);
            let wake = same.map_or_else(|| Arc::new(watch::Sender::new(())), |entry| Arc::clone(&entry.wake));
            let is_new = same.is_none();
            let falls = same.is_some_and(|entry| falls(&entry.state, &state));
            let reports = same.is_some_and(|entry| entry.state.report != state.report);
            let harmed = falls || same.is_some_and(|entry| fails(&entry.state, &state));
            let fell = if falls { Some(Instant::now()) } else { same.and_then(|entry| entry.fell) };
            let entry = PodEntry { state: Arc::clone(&state), fell, wake: Arc::clone(&wake) };
            if let Some(replaced) = before.cloned() {
                space.leave_node(&replaced.state);
                if is_new {
                    space.unsubscribe(&replaced.state);
                    replaced.wake.send_replace(());
                }
            }
            space.enter_node(&state);
            space.keep_pod(key, entry);
            if reports {
                space.reported = Some(Instant::now());
            }
            wake.send_replace(());
            let configs = configs_of(&state);
            (state, configs, is_new, harmed)
        };
        if is_new {
            self.pod_added.send_replace(());
        }
        if state.terminating
            && let Some(listener) = self.pod_gone.get()
        {
            listener(&state);
        }
        for config in configs {
            self.notify(&IndexEvent::Pods { config, harmed });
        }
    }

    /// Removes a pod.
    pub fn remove_pod(&self, key: &PodKey) {
        let state = {
            let mut inner = self.lock();
            let Some(space) = inner.spaces.get_mut(&key.namespace) else { return };
            space.unkept.remove(Kind::Pods, &key.name);
            let Some(entry) = space.pods.remove(key) else { return };
            space.unsubscribe(&entry.state);
            space.leave_node(&entry.state);
            space.removed(Kind::Pods);
            entry.wake.send_replace(());
            entry.state
        };
        if let Some(listener) = self.pod_gone.get() {
            listener(&state);
        }
        for config in configs_of(&state) {
            self.notify(&IndexEvent::Pods { config, harmed: false });
        }
    }

    pub(super) fn wake(&self, key: &ConfigKey) {
        let inner = self.lock();
        let Some(space) = inner.spaces.get(&key.namespace) else { return };
        space.users(key).for_each(PodEntry::wake);
    }
}

/// Returns whether its containers crashed, or became unready although the API ordered no restart.
fn falls(before: &PodState, now: &PodState) -> bool {
    let is_ordered = |pod: &PodState| pod.restarting || pod.is_resizing();
    let ordered = is_ordered(now) || is_ordered(before) || now.ordered_restarts > before.ordered_restarts;
    now.restarts > before.restarts || (before.containers_ready && !now.containers_ready && !ordered)
}

/// Returns whether it reports a failure that it did not report before.
fn fails(before: &PodState, now: &PodState) -> bool {
    let (before, now) = (before.report.as_ref(), now.report.as_ref());
    let failed = now.map(|now| &now.state).filter(|state| matches!(state, ReportState::Failed(_)));
    failed.is_some_and(|failed| before.is_none_or(|before| before.state != *failed))
}

impl Space {
    /// The pods that use the config.
    fn users(&self, config: &ConfigKey) -> impl Iterator<Item = &PodEntry> {
        self.pods_by_config.get(config).into_iter().flat_map(BTreeMap::values)
    }

    fn keep_pod(&mut self, key: PodKey, entry: PodEntry) {
        for config in configs_of(&entry.state) {
            self.pods_by_config.entry(config).or_default().insert(key.name.clone(), entry.clone());
        }
        self.pods.insert(key, entry);
    }

    fn enter_node(&mut self, pod: &PodState) {
        if !pod.node.is_empty() {
            self.pods_by_node.entry(pod.node.clone()).or_default().insert(pod.key());
        }
    }

    fn leave_node(&mut self, pod: &PodState) {
        if let Some(keys) = self.pods_by_node.get_mut(&pod.node) {
            keys.remove(&pod.key());
            if keys.is_empty() {
                self.pods_by_node.remove(&pod.node);
            }
        }
    }

    fn unsubscribe(&mut self, pod: &PodState) {
        for key in configs_of(pod) {
            if let Some(names) = self.pods_by_config.get_mut(&key) {
                names.remove(&pod.name);
                if names.is_empty() {
                    self.pods_by_config.remove(&key);
                }
            }
        }
    }
}

fn configs_of(pod: &PodState) -> Vec<ConfigKey> {
    pod.configs.iter().map(|name| ConfigKey::new(&*pod.namespace, name.clone())).collect()
}
