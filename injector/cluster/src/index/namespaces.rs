//! The enabled namespaces and the listeners: plain maps under one lock, which is held for single look-ups and
//! assignments.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use nudge_api::PartKind;
use nudge_core::keys::ConfigKey;
use nudge_core::pods::PodState;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard, RwLock};
use tokio::sync::watch;

use super::known_policies::KnownPolicies;
use super::namespace_state::{Labels, NamespaceState};
use super::{IndexEvent, WatchedKind};
use crate::watch_health::WatchHealth;

#[derive(Default)]
pub(super) struct IndexState {
    /// The enabled namespaces. Nothing is kept of other namespaces.
    pub(super) namespaces: HashMap<String, NamespaceState>,
    /// The kinds to list in each namespace before it is complete.
    pub(super) expected: BTreeSet<WatchedKind>,
    /// The watches that all namespaces share.
    pub(super) shared: Vec<(WatchedKind, WatchHealth)>,
    /// The watches that do not belong to one namespace.
    pub(super) healths: Vec<WatchHealth>,
    /// The policies of the cluster, if they matter.
    pub(super) policies: Option<KnownPolicies>,
}

type EventListener = Box<dyn Fn(&IndexEvent) + Send + Sync>;
type PodListener = Box<dyn Fn(&PodState) + Send + Sync>;
type AccountListener = Box<dyn Fn(&str) + Send + Sync>;

/// The injector's knowledge of the cluster.
#[derive(Default)]
pub struct Index {
    inner: Mutex<IndexState>,
    enabled: watch::Sender<Arc<BTreeSet<String>>>,
    pub(super) additions: watch::Sender<()>,
    listeners: RwLock<Vec<EventListener>>,
    pub(super) pod_gone: OnceLock<PodListener>,
    pub(super) account_gone: OnceLock<AccountListener>,
    /// Whether everything was listed once.
    pub(super) synced: AtomicBool,
}

impl Index {
    /// Calls `listener` for every event from now on. It must not block.
    pub fn listen(&self, listener: impl Fn(&IndexEvent) + Send + Sync + 'static) {
        self.listeners.write().push(Box::new(listener));
    }

    /// Calls `listener` with every pod that is terminating or gone. It must not block. Only the first call counts.
    pub fn on_pod_gone(&self, listener: impl Fn(&PodState) + Send + Sync + 'static) {
        let _ = self.pod_gone.set(Box::new(listener));
    }

    /// Calls `listener` with the uid of every service account that is gone. It must not block. Only the first call
    /// counts.
    pub fn on_account_gone(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        let _ = self.account_gone.set(Box::new(listener));
    }

    /// Locks the index. A panic while it is locked leaves nothing half done, since only single assignments happen under
    /// the lock.
    pub(super) fn lock(&self) -> MutexGuard<'_, IndexState> {
        self.inner.lock()
    }

    /// Locks the index for a namespace, if it is enabled.
    pub(super) fn lock_namespace(&self, namespace: &str) -> Option<MappedMutexGuard<'_, NamespaceState>> {
        MutexGuard::try_map(self.lock(), |inner| inner.namespaces.get_mut(namespace)).ok()
    }

    /// Removes an object by `remove`, which returns it if it was kept. There is room for one that was left out, then.
    pub(super) fn remove_object<T>(
        &self,
        kind: WatchedKind,
        namespace: &str,
        name: &str,
        remove: impl FnOnce(&mut NamespaceState) -> Option<T>,
    ) -> Option<T> {
        let mut state = self.lock_namespace(namespace)?;
        state.left_out.remove(kind, name);
        let removed = remove(&mut state)?;
        state.relist_left_out(kind);
        Some(removed)
    }

    pub(super) fn notify(&self, event: &IndexEvent) {
        for listener in self.listeners.read().iter() {
            listener(event);
        }
    }

    /// Returns a receiver of the enabled namespaces.
    pub fn enabled_namespaces(&self) -> watch::Receiver<Arc<BTreeSet<String>>> {
        self.enabled.subscribe()
    }

    /// Returns whether the namespace is enabled.
    pub fn is_enabled(&self, namespace: &str) -> bool {
        self.lock().namespaces.contains_key(namespace)
    }

    /// Returns the value of a label of an enabled namespace.
    pub fn namespace_label(&self, namespace: &str, label: &str) -> Option<String> {
        self.lock_namespace(namespace)?.labels.get(label).cloned()
    }

    /// Returns the number of configs of a namespace.
    pub fn count_configs(&self, namespace: &str) -> usize {
        self.lock_namespace(namespace).map_or(0, |state| state.configs.len())
    }

    /// Sets the enabled namespaces. Others are forgotten, which deletes nothing in the cluster.
    pub fn set_enabled(&self, namespaces: BTreeSet<String>) {
        self.set_labelled(namespaces.into_iter().map(|namespace| (namespace, Arc::default())).collect());
    }

    /// Sets the enabled namespaces with their labels. If these change, other policies may hold.
    pub fn set_labelled(&self, enabled: BTreeMap<String, Arc<Labels>>) {
        let (touched, forgotten) = {
            let mut inner = self.lock();
            let (mut touched, mut forgotten) = (Vec::new(), Vec::new());
            inner.namespaces.retain(|namespace, state| {
                let labels = enabled.get(namespace);
                match labels {
                    Some(labels) if state.labels != *labels => {
                        state.labels = Arc::clone(labels);
                        touched.extend(state.config_keys().cloned());
                    }
                    Some(_) => {}
                    None => {
                        touched.extend(state.config_keys().cloned());
                        forgotten.extend(state.pods.drain().map(|(_, entry)| entry));
                    }
                }
                labels.is_some()
            });
            let IndexState { namespaces, expected, shared, .. } = &mut *inner;
            for (namespace, labels) in &enabled {
                let begin = || NamespaceState::new(expected.clone(), shared.clone(), Arc::clone(labels));
                namespaces.entry(namespace.clone()).or_insert_with(begin);
            }
            (touched, forgotten)
        };
        self.enabled.send_replace(Arc::new(enabled.into_keys().collect()));
        for entry in forgotten {
            entry.wake();
        }
        self.wake_all(touched);
    }

    /// Returns whether Secrets of the namespace may be read.
    pub fn may_read_secrets(&self, namespace: &str) -> bool {
        self.lock_namespace(namespace).is_some_and(|state| state.secrets_allowed)
    }

    /// Shows the Secrets of versions in the namespace, once all are known. They appear in one step, so that a readable
    /// namespace never seems to have none.
    pub fn show_secrets(&self, namespace: &str) {
        self.touch(namespace, |state| !std::mem::replace(&mut state.secrets_allowed, true));
    }

    /// Removes the Secrets of the namespace, which may no longer be read: in one step, so that none counts as deleted.
    pub fn forget_secrets(&self, namespace: &str) {
        self.touch(namespace, |state| {
            state.parts.clear(PartKind::Secret);
            std::mem::replace(&mut state.secrets_allowed, false)
        });
    }

    /// Changes the state of a namespace. Wakes everything in it if `change` returns true, or if the change
    /// completes it.
    pub(super) fn touch(&self, namespace: &str, change: impl FnOnce(&mut NamespaceState) -> bool) {
        let (touched, completes) = {
            let Some(mut state) = self.lock_namespace(namespace) else { return };
            let was_complete = state.is_complete();
            let changes = change(&mut state);
            let completes = state.is_complete() && !was_complete;
            let touched = if changes || completes { state.config_keys().cloned().collect() } else { Vec::new() };
            (touched, completes)
        };
        self.wake_all(touched);
        if completes {
            // Requests wait for pods of a namespace that was not complete.
            self.additions.send_replace(());
        }
    }

    fn wake_all(&self, keys: Vec<ConfigKey>) {
        for key in keys {
            self.wake(&key);
            self.notify(&IndexEvent::Config(key));
        }
    }
}
