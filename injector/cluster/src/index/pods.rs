//! The pods with an agent, and the notifications of their changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use nudge_core::keys::{ConfigKey, PodKey};
use nudge_core::pods::{LastCommand, PodState, ReportState};
use tokio::sync::watch;

use super::namespace_state::NamespaceState;
use super::pod_entry::PodEntry;
use super::{Index, IndexEvent, WatchedKind};

impl Index {
    /// Returns the pod, as the watch last showed it.
    pub fn pod(&self, key: &PodKey) -> Option<PodEntry> {
        self.lock_namespace(&key.namespace)?.pods.get(key).cloned()
    }

    /// Returns a receiver of new pods and service accounts, and of namespaces that become complete.
    pub fn additions(&self) -> watch::Receiver<()> {
        self.additions.subscribe()
    }

    /// Returns the pods that use the config and may have it, by name: nothing is assigned to others, and nothing waits
    /// for them.
    pub fn subscribers(&self, key: &ConfigKey) -> Vec<Arc<PodState>> {
        let Some(state) = self.lock_namespace(&key.namespace) else { return Vec::new() };
        let config = state.configs.get(key);
        let pods = state.users(key);
        let admitted =
            pods.filter(|entry| config.is_none_or(|kept| kept.config.spec.admits(&entry.state.service_account)));
        admitted.map(|entry| Arc::clone(&entry.state)).collect()
    }

    /// Returns the number of pods that use the config.
    pub fn count_users(&self, key: &ConfigKey) -> usize {
        self.lock_namespace(&key.namespace).map_or(0, |state| state.pods_by_config.get(key).map_or(0, BTreeMap::len))
    }

    /// Returns all pods that use the config, even if they may not have it: a pod that no longer may still has its last
    /// version. Returns `None` while pods of the namespace are left out.
    pub fn users(&self, key: &ConfigKey) -> Option<Vec<Arc<PodState>>> {
        let Some(state) = self.lock_namespace(&key.namespace) else { return Some(Vec::new()) };
        if state.left_out.count(WatchedKind::Pods) > 0 {
            return None;
        }
        Some(state.users(key).map(|entry| Arc::clone(&entry.state)).collect())
    }

    /// Returns the configs that pods use.
    pub fn subscribed_configs(&self) -> Vec<ConfigKey> {
        self.lock().namespaces.values().flat_map(|state| state.pods_by_config.keys().cloned()).collect()
    }

    /// Returns all pods.
    pub fn pods(&self) -> Vec<Arc<PodState>> {
        let inner = self.lock();
        let pods = inner.namespaces.values().flat_map(|state| state.pods.values());
        pods.map(|entry| Arc::clone(&entry.state)).collect()
    }

    /// Returns the pods on these nodes, and when the containers of each last became unready or restarted.
    pub fn pods_on(&self, nodes: &BTreeSet<&str>) -> Vec<(Arc<PodState>, Option<Instant>)> {
        let inner = self.lock();
        let pods_on = |state: &NamespaceState, node: &&str| {
            let keys = state.pods_by_node.get(*node).into_iter().flatten();
            let pods = keys.filter_map(|key| state.pods.get(key));
            pods.map(|entry| (Arc::clone(&entry.state), entry.fell_at)).collect::<Vec<_>>()
        };
        inner.namespaces.values().flat_map(|state| nodes.iter().flat_map(|node| pods_on(state, node))).collect()
    }

    /// Returns when the report of any pod, or of any pod of a namespace, was last seen to change.
    pub fn last_report_change(&self, namespace: Option<&str>) -> Option<Instant> {
        let inner = self.lock();
        match namespace {
            Some(namespace) => inner.namespaces.get(namespace)?.reported_at,
            None => inner.namespaces.values().filter_map(|state| state.reported_at).max(),
        }
    }

    /// Adds a pod, or replaces it.
    pub fn put_pod(&self, pod: PodState) {
        let key = pod.key();
        let (pod, configs, is_new, harmed) = {
            let Some(mut state) = self.lock_namespace(&key.namespace) else { return };
            let present = state.pods.get(&key);
            let same_pod = present.filter(|entry| entry.state.uid == pod.uid);
            let mut pod = if let Some(same_pod) = same_pod { pod.after(&same_pod.state) } else { pod };
            if let Some(entry) = present.filter(|entry| pod.is_same_but_for_version(&entry.state)) {
                let entry = PodEntry { state: Arc::new(pod), ..entry.clone() };
                return state.keep_pod(key, entry);
            }
            let pod = Arc::new(pod);
            let is_known = state.pods.contains_key(&key);
            if !state.has_room(WatchedKind::Pods, &key.namespace, &key.name, is_known) {
                return;
            }
            let before = state.pods.get(&key);
            let same_pod = before.filter(|entry| entry.state.uid == pod.uid);
            let wake = same_pod.map_or_else(|| Arc::new(watch::Sender::new(())), |entry| Arc::clone(&entry.wake));
            let is_new = same_pod.is_none();
            let has_newly_fallen = same_pod.is_some_and(|entry| has_fallen(&entry.state, &pod));
            let reports = same_pod.is_some_and(|entry| entry.state.report != pod.report);
            let harmed = has_newly_fallen || same_pod.is_some_and(|entry| reports_failure(&entry.state, &pod));
            let fell_at =
                if has_newly_fallen { Some(Instant::now()) } else { same_pod.and_then(|entry| entry.fell_at) };
            let entry = PodEntry { state: Arc::clone(&pod), fell_at, wake: Arc::clone(&wake) };
            if let Some(replaced) = before.cloned() {
                state.leave_node(&replaced.state);
                if is_new {
                    state.unsubscribe(&replaced.state);
                    replaced.wake.send_replace(());
                }
            }
            if let Some(node) = &pod.node {
                state.pods_by_node.entry(node.clone()).or_default().insert(key.clone());
            }
            state.keep_pod(key, entry);
            if reports {
                state.reported_at = Some(Instant::now());
            }
            wake.send_replace(());
            let configs = configs_of(&pod);
            (pod, configs, is_new, harmed)
        };
        if is_new {
            self.additions.send_replace(());
        }
        if pod.is_terminating()
            && let Some(listener) = self.pod_gone.get()
        {
            listener(&pod);
        }
        for config in configs {
            self.notify(&IndexEvent::Pods { config, harmed });
        }
    }

    /// Removes a pod.
    pub fn remove_pod(&self, key: &PodKey) {
        let remove = |state: &mut NamespaceState| {
            let entry = state.pods.remove(key)?;
            state.unsubscribe(&entry.state);
            state.leave_node(&entry.state);
            entry.wake.send_replace(());
            Some(entry.state)
        };
        let Some(pod) = self.remove_object(WatchedKind::Pods, &key.namespace, &key.name, remove) else { return };
        if let Some(listener) = self.pod_gone.get() {
            listener(&pod);
        }
        for config in configs_of(&pod) {
            self.notify(&IndexEvent::Pods { config, harmed: false });
        }
    }

    pub(super) fn wake(&self, key: &ConfigKey) {
        let Some(state) = self.lock_namespace(&key.namespace) else { return };
        state.users(key).for_each(PodEntry::wake);
    }
}

/// Returns whether containers crashed, or became unready although the API ordered no restart.
fn has_fallen(before: &PodState, now: &PodState) -> bool {
    let is_ordered = |pod: &PodState| pod.agent.last_command == LastCommand::Restarting || pod.restarts.is_resizing();
    let (sums, sums_before) = (now.restarts.sums(), before.restarts.sums());
    let ordered = is_ordered(now) || is_ordered(before) || sums.ordered > sums_before.ordered;
    sums.crashes > sums_before.crashes || (before.containers_ready && !now.containers_ready && !ordered)
}

/// Returns whether the pod reports a failure that it did not report before.
fn reports_failure(before: &PodState, now: &PodState) -> bool {
    let (before, now) = (before.report.as_ref(), now.report.as_ref());
    let failed = now.map(|now| &now.state).filter(|state| matches!(state, ReportState::Failed(_)));
    failed.is_some_and(|failed| before.is_none_or(|before| before.state != *failed))
}

impl NamespaceState {
    /// Returns the pods that use the config.
    fn users(&self, config: &ConfigKey) -> impl Iterator<Item = &PodEntry> {
        self.pods_by_config.get(config).into_iter().flat_map(BTreeMap::values)
    }

    fn keep_pod(&mut self, key: PodKey, entry: PodEntry) {
        for config in configs_of(&entry.state) {
            self.pods_by_config.entry(config).or_default().insert(key.name.clone(), entry.clone());
        }
        self.pods.insert(key, entry);
    }

    fn leave_node(&mut self, pod: &PodState) {
        if let Some(node) = &pod.node
            && let Some(keys) = self.pods_by_node.get_mut(node)
        {
            keys.remove(&pod.key());
            if keys.is_empty() {
                self.pods_by_node.remove(node);
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
