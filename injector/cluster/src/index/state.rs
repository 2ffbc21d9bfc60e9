//! The state itself: plain maps under one lock that is held for single look-ups and assignments, and what wakes those who wait.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use nudge_api::{PartKind, VersionedConfig};
use nudge_core::keys::{ConfigKey, PartMeta, PodKey, PublishedMeta};
use nudge_core::pods::PodState;
use nudge_protocol::ConfigName;
use tokio::sync::watch;

use super::IndexEvent;
use super::parts::{Parts, Placed};
use crate::watch::WatchHealth;

/// A pod, and what wakes those who wait for something that concerns it.
#[derive(Clone, Debug)]
pub struct PodEntry {
    /// What is known of it.
    pub state: Arc<PodState>,
    wake: Arc<watch::Sender<()>>,
}

impl PodEntry {
    /// Becomes ready with every change of the pod or of a config that it uses. Subscribe first, then look.
    pub fn woken(&self) -> watch::Receiver<()> {
        self.wake.subscribe()
    }
}

#[derive(Default)]
struct Inner {
    configs: HashMap<ConfigKey, Arc<VersionedConfig>>,
    parts: Parts,
    published: HashMap<ConfigKey, PublishedMeta>,
    pods: HashMap<PodKey, PodEntry>,
    pods_by_config: HashMap<ConfigKey, BTreeSet<String>>,
    /// Enabled namespaces whose Secrets may be read.
    secrets_allowed: BTreeSet<String>,
    healths: Vec<WatchHealth>,
}

type EventListener = Box<dyn Fn(&IndexEvent) + Send + Sync>;
type PodListener = Box<dyn Fn(&PodState) + Send + Sync>;

/// See the module's text.
pub struct Index {
    inner: Mutex<Inner>,
    enabled: watch::Sender<Arc<BTreeSet<String>>>,
    pod_added: watch::Sender<()>,
    listeners: RwLock<Vec<EventListener>>,
    pod_gone: OnceLock<PodListener>,
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

    /// Calls `listener` with every pod that is going or gone. It must not block. Only the first call counts.
    pub fn on_pod_gone(&self, listener: impl Fn(&PodState) + Send + Sync + 'static) {
        let _ = self.pod_gone.set(Box::new(listener));
    }

    /// Nobody panics while holding it, and if so: single assignments leave nothing half done.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, event: &IndexEvent) {
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

    /// Takes in the enabled namespaces.
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

    /// These are all Secrets of versions in the namespace, which may be read. One step, so that nobody sees a namespace that may be
    /// read and has none.
    pub fn see_secrets(&self, namespace: &str, all: Vec<(ConfigKey, PartMeta)>) {
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

    /// Secrets of the namespace can't be seen any more. One step, so that none counts as deleted.
    pub fn unsee_secrets(&self, namespace: &str) {
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
            self.tell(&IndexEvent::Config(key));
        }
    }

    // ---- Configs

    /// The config as it is known now.
    pub fn config(&self, key: &ConfigKey) -> Option<Arc<VersionedConfig>> {
        self.lock().configs.get(key).cloned()
    }

    /// All configs.
    pub fn configs(&self) -> Vec<ConfigKey> {
        self.lock().configs.keys().cloned().collect()
    }

    /// Takes in a config as a watch shows it, unless a newer state of it is known: the answer to an own write may come before its
    /// watch event.
    pub fn put_config(&self, config: VersionedConfig) {
        self.take_config(config, |known, new| {
            known.is_none_or(|known| known.metadata.uid != new.metadata.uid || revision_of(known) < revision_of(new))
        });
    }

    /// Takes in a config as a list shows it.
    pub fn replace_config(&self, config: VersionedConfig) {
        self.take_config(config, |known, new| {
            known.is_none_or(|known| known.metadata.resource_version != new.metadata.resource_version)
        });
    }

    /// Takes in the answer to an own write. It may come after the config is gone, so it adds none.
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
        let key = ConfigKey::new(
            config.metadata.namespace.clone().unwrap_or_default(),
            config.metadata.name.clone().unwrap_or_default(),
        );
        let concerns_pods = {
            let mut inner = self.lock();
            let known = inner.configs.get(&key);
            if !take(known.map(Arc::as_ref), &config) {
                return;
            }
            // Not when only pods were counted, which happens with every pod that reports.
            let concerns = known.is_none_or(|known| assignment(known) != assignment(&config));
            inner.configs.insert(key.clone(), Arc::new(config));
            concerns
        };
        if concerns_pods {
            self.wake(&key);
        }
        self.tell(&IndexEvent::Config(key));
    }

    /// Takes in that a config is gone.
    pub fn remove_config(&self, key: &ConfigKey) {
        let gone = self.lock().configs.remove(key);
        if let Some(config) = gone {
            self.wake(key);
            self.tell(&IndexEvent::ConfigGone(key.clone(), config));
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

    /// Takes in one part.
    pub fn put_part(&self, key: ConfigKey, part: PartMeta) {
        let before = self.lock().parts.put(key.clone(), part);
        match before {
            Placed::Unchanged => {}
            Placed::New => self.tell(&IndexEvent::Config(key)),
            Placed::Moved(from) => {
                self.tell(&IndexEvent::Config(from));
                self.tell(&IndexEvent::Config(key));
            }
        }
    }

    /// Takes in that a part is gone.
    pub fn remove_part(&self, kind: PartKind, namespace: &str, name: &str) {
        let removed = self.lock().parts.remove(&(kind, ConfigKey::new(namespace, name)));
        if let Some(key) = removed {
            self.tell(&IndexEvent::Config(key));
        }
    }

    /// Takes in all parts of a kind.
    pub fn replace_parts(&self, kind: PartKind, all: Vec<(ConfigKey, PartMeta)>) {
        let keep: BTreeSet<ConfigKey> =
            all.iter().map(|(key, part)| ConfigKey::new(key.namespace.clone(), part.name.clone())).collect();
        let gone = self.lock().parts.others(kind, &keep);
        for object in gone {
            self.remove_part(kind, &object.namespace, &object.name);
        }
        for (key, part) in all {
            self.put_part(key, part);
        }
    }

    // ---- Published ConfigMaps

    /// The plain ConfigMap with our mark, as far as it is known.
    pub fn published(&self, key: &ConfigKey) -> Option<PublishedMeta> {
        self.lock().published.get(key).cloned()
    }

    /// Takes in a plain ConfigMap with our mark, or that it is gone.
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
        self.tell(&IndexEvent::Config(key));
    }

    /// Keys of all plain ConfigMaps with our mark.
    pub fn published_keys(&self) -> Vec<ConfigKey> {
        self.lock().published.keys().cloned().collect()
    }

    // ---- Pods

    /// The pod.
    pub fn pod(&self, key: &PodKey) -> Option<PodEntry> {
        self.lock().pods.get(key).cloned()
    }

    /// Becomes ready whenever a pod is new.
    pub fn pod_added(&self) -> watch::Receiver<()> {
        self.pod_added.subscribe()
    }

    /// The pods that use the config.
    pub fn subscribers(&self, key: &ConfigKey) -> Vec<Arc<PodState>> {
        let inner = self.lock();
        let names = inner.pods_by_config.get(key).into_iter().flatten();
        let pods = names.filter_map(|name| inner.pods.get(&PodKey::new(key.namespace.clone(), name.clone())));
        pods.map(|entry| Arc::clone(&entry.state)).collect()
    }

    /// Configs that pods use.
    pub fn subscribed(&self) -> Vec<ConfigKey> {
        self.lock().pods_by_config.keys().cloned().collect()
    }

    /// All pods.
    pub fn pods(&self) -> Vec<Arc<PodState>> {
        self.lock().pods.values().map(|entry| Arc::clone(&entry.state)).collect()
    }

    /// Takes in a pod.
    pub fn put_pod(&self, state: PodState) {
        let key = PodKey::new(state.namespace.clone(), state.name.clone());
        let state = Arc::new(state);
        let (configs, is_new) = {
            let mut inner = self.lock();
            if let Some(entry) = inner.pods.get_mut(&key).filter(|entry| entry.state == state) {
                // Nothing to be told of, but another version of the object.
                entry.state = state;
                return;
            }
            let before = inner.pods.get(&key);
            let same = before.filter(|entry| entry.state.uid == state.uid);
            let wake = same.map_or_else(|| Arc::new(watch::Sender::new(())), |entry| Arc::clone(&entry.wake));
            let is_new = same.is_none();
            let entry = PodEntry { state: Arc::clone(&state), wake: Arc::clone(&wake) };
            let replaced = inner.pods.insert(key.clone(), entry);
            if let Some(replaced) = replaced.filter(|_| is_new) {
                inner.unlist(&replaced.state);
                replaced.wake.send_replace(());
            }
            if is_new {
                inner.list(&state);
            }
            wake.send_replace(());
            (configs_of(&state), is_new)
        };
        if is_new {
            self.pod_added.send_replace(());
        }
        if state.terminating
            && let Some(listener) = self.pod_gone.get()
        {
            listener(&state);
        }
        for key in configs {
            self.tell(&IndexEvent::Pods(key));
        }
    }

    /// Takes in that a pod is gone.
    pub fn remove_pod(&self, key: &PodKey) {
        let state = {
            let mut inner = self.lock();
            let Some(entry) = inner.pods.remove(key) else { return };
            inner.unlist(&entry.state);
            entry.wake.send_replace(());
            entry.state
        };
        if let Some(listener) = self.pod_gone.get() {
            listener(&state);
        }
        for key in configs_of(&state) {
            self.tell(&IndexEvent::Pods(key));
        }
    }

    fn wake(&self, key: &ConfigKey) {
        let inner = self.lock();
        for name in inner.pods_by_config.get(key).into_iter().flatten() {
            if let Some(entry) = inner.pods.get(&PodKey::new(key.namespace.clone(), name.clone())) {
                entry.wake.send_replace(());
            }
        }
    }

    // ---- Liveness

    /// Adds a watch's pulse, which counts from now on.
    pub fn add_health(&self, health: WatchHealth) {
        self.lock().healths.push(health);
    }

    /// The age of every watch since its last confirmation; `None` where nothing was listed yet.
    pub fn ages(&self) -> Vec<(&'static str, Option<Duration>)> {
        self.lock().healths.iter().map(|health| (health.what, health.age())).collect()
    }

    /// A watch that was not confirmed for longer than `longest`, or never.
    pub fn silent(&self, longest: Duration) -> Option<(&'static str, Option<Duration>)> {
        self.ages().into_iter().find(|(_, age)| age.is_none_or(|age| age > longest))
    }

    /// A watch that may have missed something: it was interrupted, or is asked, and the server has not confirmed yet what is known.
    pub fn doubted(&self) -> Option<&'static str> {
        self.lock().healths.iter().find(|health| health.is_doubted()).map(|health| health.what)
    }

    /// How long ago a watch was last in such doubt for longer than a moment.
    pub fn last_blind(&self) -> Option<Duration> {
        self.lock().healths.iter().filter_map(WatchHealth::last_blind).max().map(|at| at.elapsed())
    }

    /// Has the server confirm that everything until `until` is known; gives what it has not confirmed within `longest`.
    pub async fn confirm(&self, until: Instant, longest: Duration) -> Result<(), &'static str> {
        let open = || self.lock().healths.iter().find(|health| !health.is_confirmed(until)).map(|health| health.what);
        for health in self.lock().healths.iter().filter(|health| !health.is_confirmed(until)) {
            health.ask();
        }
        let confirmed = async {
            while open().is_some() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = tokio::time::timeout(longest, confirmed).await;
        open().map_or(Ok(()), Err)
    }

    /// Waits until everything was listed at least once.
    pub async fn synced(&self) {
        while !self.is_synced() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Everything was listed at least once.
    pub fn is_synced(&self) -> bool {
        let ages = self.ages();
        !ages.is_empty() && ages.iter().all(|(_, age)| age.is_some())
    }
}

impl Inner {
    fn configs_in(&self, namespace: &str) -> Vec<ConfigKey> {
        self.configs.keys().filter(|key| key.namespace == namespace).cloned().collect()
    }

    fn list(&mut self, pod: &PodState) {
        for key in configs_of(pod) {
            self.pods_by_config.entry(key).or_default().insert(pod.name.clone());
        }
    }

    fn unlist(&mut self, pod: &PodState) {
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
    pod.configs.iter().map(|name: &ConfigName| ConfigKey::new(pod.namespace.clone(), name.as_str())).collect()
}

/// Resource versions are numbers that grow, in every server that there is (KEP-5504 makes it a promise).
fn revision_of(config: &VersionedConfig) -> u64 {
    let version = config.metadata.resource_version.as_deref();
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// All of a config that any pod's version depends on.
fn assignment(config: &VersionedConfig) -> impl PartialEq + '_ {
    let status = config.status.as_ref();
    let of_status = status.map(|it| (&it.rollout, &it.current, &it.target, &it.versions, it.phase));
    (&config.metadata.uid, &config.metadata.deletion_timestamp, of_status)
}
