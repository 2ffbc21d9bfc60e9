//! The state: plain maps under one lock, which is held for single look-ups and assignments, and the listeners.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use nudge_api::{PartKind, VersionedConfig};
use nudge_core::keys::{ConfigKey, ObjectKey, PartMeta, PodKey, PublishedMeta};
use nudge_core::pods::PodState;
use nudge_protocol::error_chain::chain;
use tokio::sync::watch;

use super::IndexEvent;
use super::parts::{Parts, Put, object_key};
use super::pods::PodEntry;
use crate::watch_health::WatchHealth;

#[derive(Default)]
pub(super) struct Inner {
    configs: HashMap<ConfigKey, Arc<VersionedConfig>>,
    parts: Parts,
    published: HashMap<ConfigKey, PublishedMeta>,
    pub(super) pods: HashMap<PodKey, PodEntry>,
    /// The names of the pods that use each config.
    pub(super) pods_by_config: HashMap<ConfigKey, BTreeSet<String>>,
    /// Enabled namespaces whose Secrets may be read.
    secrets_allowed: BTreeSet<String>,
    pub(super) healths: Vec<WatchHealth>,
}

type EventListener = Box<dyn Fn(&IndexEvent) + Send + Sync>;
type PodListener = Box<dyn Fn(&PodState) + Send + Sync>;

/// What the injector knows of the cluster.
pub struct Index {
    inner: Mutex<Inner>,
    enabled: watch::Sender<Arc<BTreeSet<String>>>,
    pub(super) pod_added: watch::Sender<()>,
    listeners: RwLock<Vec<EventListener>>,
    pub(super) pod_gone: OnceLock<PodListener>,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            inner: Mutex::default(),
            enabled: watch::Sender::new(Arc::default()),
            pod_added: watch::Sender::new(()),
            listeners: RwLock::default(),
            pod_gone: OnceLock::new(),
        }
    }
}

impl Index {
    /// Calls `listener` for every event from now on. It must not block.
    pub fn listen(&self, listener: impl Fn(&IndexEvent) + Send + Sync + 'static) {
        self.listeners.write().unwrap_or_else(PoisonError::into_inner).push(Box::new(listener));
    }

    /// Calls `listener` with every pod that is terminating or gone. It must not block. Only the first call counts.
    pub fn on_pod_gone(&self, listener: impl Fn(&PodState) + Send + Sync + 'static) {
        let _ = self.pod_gone.set(Box::new(listener));
    }

    /// A panic while it is held leaves nothing half done, since all that happens under it is single assignments.
    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn notify(&self, event: &IndexEvent) {
        for listener in self.listeners.read().unwrap_or_else(PoisonError::into_inner).iter() {
            listener(event);
        }
    }

    // ---- Namespaces

    /// The enabled namespaces.
    pub fn enabled(&self) -> watch::Receiver<Arc<BTreeSet<String>>> {
        self.enabled.subscribe()
    }

    /// Whether the namespace is enabled.
    pub fn is_enabled(&self, namespace: &str) -> bool {
        self.enabled.borrow().contains(namespace)
    }

    /// Sets the enabled namespaces.
    pub fn set_enabled(&self, namespaces: BTreeSet<String>) {
        let before = self.enabled.send_replace(Arc::new(namespaces));
        let now = self.enabled.borrow().clone();
        let touched: Vec<ConfigKey> = {
            let inner = self.lock();
            let differs = |key: &&ConfigKey| before.contains(&key.namespace) != now.contains(&key.namespace);
            inner.configs.keys().chain(inner.pods_by_config.keys()).filter(differs).cloned().collect()
        };
        self.wake_all(touched);
    }

    /// Whether Secrets of the namespace may be read.
    pub fn secrets_allowed(&self, namespace: &str) -> bool {
        self.lock().secrets_allowed.contains(namespace)
    }

    /// Sets the Secrets of versions in the namespace, which may be read: in one step, so that a namespace that may be read never seems to
    /// have none.
    pub fn set_secrets(&self, namespace: &str, all: Vec<(ConfigKey, PartMeta)>) {
        // Its watch may end a moment after the namespace was disabled.
        if !self.is_enabled(namespace) {
            return;
        }
        let touched = {
            let mut inner = self.lock();
            inner.secrets_allowed.insert(namespace.to_owned());
            inner.parts.clear(PartKind::Secret, namespace);
            for (key, part) in all {
                inner.parts.put(key, part);
            }
            inner.configs_in(namespace)
        };
        self.wake_all(touched);
    }

    /// Removes the Secrets of the namespace, which may not be read any more: in one step, so that none counts as deleted.
    pub fn forget_secrets(&self, namespace: &str) {
        let touched = {
            let mut inner = self.lock();
            if !inner.secrets_allowed.remove(namespace) {
                return;
            }
            inner.parts.clear(PartKind::Secret, namespace);
            inner.configs_in(namespace)
        };
        self.wake_all(touched);
    }

    fn wake_all(&self, keys: Vec<ConfigKey>) {
        for key in keys {
            self.wake(&key);
            self.notify(&IndexEvent::Config(key));
        }
    }

    // ---- Configs

    /// The config.
    pub fn config(&self, key: &ConfigKey) -> Option<Arc<VersionedConfig>> {
        self.lock().configs.get(key).cloned()
    }

    /// All configs.
    pub fn configs(&self) -> Vec<ConfigKey> {
        self.lock().configs.keys().cloned().collect()
    }

    /// Adds a config from a watch, unless a newer state of it is known: the answer to an own write may come before its watch event.
    pub fn put_config(&self, config: VersionedConfig) {
        self.take_config(config, |known, new| {
            known.is_none_or(|known| known.metadata.uid != new.metadata.uid || revision_of(known) < revision_of(new))
        });
    }

    /// Adds a config from a list, which is right even where it is older: etcd may have been restored.
    pub fn replace_config(&self, config: VersionedConfig) {
        self.take_config(config, |known, new| {
            known.is_none_or(|known| known.metadata.resource_version != new.metadata.resource_version)
        });
    }

    /// Replaces a config by the answer to an own write. The answer may come after the config is gone, so it adds none.
    pub fn put_written_config(&self, config: VersionedConfig) {
        self.take_config(config, |known, new| {
            known.is_some_and(|known| known.metadata.uid == new.metadata.uid && revision_of(known) < revision_of(new))
        });
    }

    fn take_config(
        &self,
        mut config: VersionedConfig,
        take: impl FnOnce(Option<&VersionedConfig>, &VersionedConfig) -> bool,
    ) {
        config.metadata.managed_fields = None;
        let key = match ConfigKey::of(&config.metadata) {
            Ok(key) => key,
            Err(error) => {
                let namespace = config.metadata.namespace.as_deref();
                return tracing::warn!(
                    namespace,
                    error = chain(&error),
                    "VersionedConfig ignored; its name is not allowed"
                );
            }
        };
        let concerns_pods = {
            let mut inner = self.lock();
            let known = inner.configs.get(&key);
            if !take(known.map(Arc::as_ref), &config) {
                return;
            }
            // The counts of pods, which change with every report, concern no pod.
            let concerns = known.is_none_or(|known| assignment(known) != assignment(&config));
            inner.configs.insert(key.clone(), Arc::new(config));
            concerns
        };
        if concerns_pods {
            self.wake(&key);
        }
        self.notify(&IndexEvent::Config(key));
    }

    /// Removes a config.
    pub fn remove_config(&self, key: &ConfigKey) {
        let gone = self.lock().configs.remove(key);
        if let Some(config) = gone {
            self.wake(key);
            self.notify(&IndexEvent::ConfigGone(key.clone(), config));
        }
    }

    // ---- Parts

    /// The objects with labels of this config.
    pub fn parts(&self, key: &ConfigKey) -> Vec<Arc<PartMeta>> {
        self.parts_and_secrets(key).0
    }

    /// The objects with labels of this config, and whether Secrets are among those that can be seen.
    pub fn parts_and_secrets(&self, key: &ConfigKey) -> (Vec<Arc<PartMeta>>, bool) {
        let inner = self.lock();
        (inner.parts.of(key), inner.secrets_allowed.contains(&key.namespace))
    }

    /// Adds a part, or replaces it.
    pub fn put_part(&self, key: ConfigKey, part: PartMeta) {
        let before = self.lock().parts.put(key.clone(), part);
        match before {
            Put::Nothing => {}
            Put::Object => self.notify(&IndexEvent::Config(key)),
            Put::Config(from) => {
                self.notify(&IndexEvent::Config(from));
                self.notify(&IndexEvent::Config(key));
            }
        }
    }

    /// Removes a part.
    pub fn remove_part(&self, object: &ObjectKey) {
        let removed = self.lock().parts.remove(object);
        if let Some(key) = removed {
            self.notify(&IndexEvent::Config(key));
        }
    }

    /// Sets all parts of a kind.
    pub fn replace_parts(&self, kind: PartKind, all: Vec<(ConfigKey, PartMeta)>) {
        let keep: BTreeSet<ObjectKey> = all.iter().map(|(key, part)| object_key(key, part)).collect();
        let gone = self.lock().parts.others(kind, &keep);
        for object in gone {
            self.remove_part(&object);
        }
        for (key, part) in all {
            self.put_part(key, part);
        }
    }

    // ---- Published ConfigMaps

    /// The published ConfigMap of the config.
    pub fn published(&self, key: &ConfigKey) -> Option<PublishedMeta> {
        self.lock().published.get(key).cloned()
    }

    /// Sets or removes the published ConfigMap of the config.
    pub fn set_published(&self, key: ConfigKey, meta: Option<PublishedMeta>) {
        {
            let mut inner = self.lock();
            if inner.published.get(&key) == meta.as_ref() {
                return;
            }
            match meta {
                Some(meta) => inner.published.insert(key.clone(), meta),
                None => inner.published.remove(&key),
            };
        }
        self.notify(&IndexEvent::Config(key));
    }

    /// The configs that have a published ConfigMap.
    pub fn published_keys(&self) -> Vec<ConfigKey> {
        self.lock().published.keys().cloned().collect()
    }
}

impl Inner {
    fn configs_in(&self, namespace: &str) -> Vec<ConfigKey> {
        self.configs.keys().filter(|key| key.namespace == namespace).cloned().collect()
    }
}

/// Resource versions are numbers that grow: every API server has it so, and KEP-5504 promises it.
fn revision_of(config: &VersionedConfig) -> u64 {
    let version = config.metadata.resource_version.as_deref();
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// All of a config that the versions assigned to pods depend on.
fn assignment(config: &VersionedConfig) -> impl PartialEq + '_ {
    let status = config.status.as_ref();
    let of_status = status.map(|it| (&it.rollout, &it.current, &it.target, &it.versions, it.phase));
    (&config.metadata.uid, &config.metadata.deletion_timestamp, of_status)
}
