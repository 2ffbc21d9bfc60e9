//! The state: plain maps under one lock, which is held for single look-ups and assignments, and the listeners.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use nudge_api::{InternalStatus, PartKind, VersionedConfig, VersionedConfigStatus};
use nudge_core::keys::{ConfigKey, ObjectKey, PartMeta, PublishedMeta};
use nudge_core::pods::PodState;
use nudge_core::requester::REQUESTER_BYTES;
use nudge_protocol::error_chain::chain;
use nudge_protocol::labels;
use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::sync::watch;
use tokio::time::Instant;

use super::known_policies::KnownPolicies;
use super::parts::{PutChange, object_key};
use super::space::{CONFIG_BYTES, KeptConfig, Labels, Space, size};
use super::{IndexEvent, Kind};
use crate::watch_health::WatchHealth;

/// The annotations of a config that are read: what Nudge has written, with an HMAC, and that it is being imported.
const NOTICES: [&str; 5] =
    [labels::SOURCE_GONE, labels::REQUESTED_BY, labels::OVERRIDDEN_BY, labels::RETRY, labels::IMPORTING];
/// The maximum of bytes of one.
const NOTICE_BYTES: usize = REQUESTER_BYTES;

#[derive(Default)]
pub(super) struct Inner {
    /// The enabled namespaces. Nothing is kept of others.
    pub(super) spaces: HashMap<String, Space>,
    /// What is to be listed in each namespace before it is complete.
    pub(super) expected: BTreeSet<Kind>,
    /// Watches that all namespaces share.
    pub(super) shared: Vec<(Kind, WatchHealth)>,
    /// Watches that do not belong to one namespace.
    pub(super) healths: Vec<WatchHealth>,
    /// What is known of the policies of the cluster, where that matters.
    pub(super) policies: Option<KnownPolicies>,
}

type EventListener = Box<dyn Fn(&IndexEvent) + Send + Sync>;
type PodListener = Box<dyn Fn(&PodState) + Send + Sync>;
type AccountListener = Box<dyn Fn(&str) + Send + Sync>;

/// What the injector knows of the cluster.
pub struct Index {
    inner: Mutex<Inner>,
    enabled: watch::Sender<Arc<BTreeSet<String>>>,
    pub(super) pod_added: watch::Sender<()>,
    listeners: RwLock<Vec<EventListener>>,
    pub(super) pod_gone: OnceLock<PodListener>,
    pub(super) account_gone: OnceLock<AccountListener>,
    /// Whether everything was listed once.
    pub(super) synced: AtomicBool,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            inner: Mutex::default(),
            enabled: watch::Sender::new(Arc::default()),
            pod_added: watch::Sender::new(()),
            listeners: RwLock::default(),
            pod_gone: OnceLock::new(),
            account_gone: OnceLock::new(),
            synced: AtomicBool::default(),
        }
    }
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

    /// Calls `listener` with the uid of every service account that is gone. It must not block. Only the first call counts.
    pub fn on_account_gone(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        let _ = self.account_gone.set(Box::new(listener));
    }

    /// A panic while it is held leaves nothing half done, since all that happens under it is single assignments.
    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    pub(super) fn notify(&self, event: &IndexEvent) {
        for listener in self.listeners.read().iter() {
            listener(event);
        }
    }

    // ---- Namespaces

    /// The enabled namespaces.
    pub fn enabled(&self) -> watch::Receiver<Arc<BTreeSet<String>>> {
        self.enabled.subscribe()
    }

    /// Returns whether the namespace is enabled.
    pub fn is_enabled(&self, namespace: &str) -> bool {
        self.lock().spaces.contains_key(namespace)
    }

    /// Sets the enabled namespaces. Those that are no longer enabled are forgotten, which deletes nothing in the cluster.
    pub fn set_enabled(&self, namespaces: BTreeSet<String>) {
        self.set_labelled(namespaces.into_iter().map(|namespace| (namespace, Arc::default())).collect());
    }

    /// Sets the enabled namespaces with their labels. Where these change, other policies may hold.
    pub fn set_labelled(&self, namespaces: BTreeMap<String, Arc<Labels>>) {
        let (touched, forgotten) = {
            let mut inner = self.lock();
            let (mut touched, mut forgotten) = (Vec::new(), Vec::new());
            inner.spaces.retain(|namespace, space| {
                let labels = namespaces.get(namespace);
                match labels {
                    Some(labels) if space.labels != *labels => {
                        space.labels = Arc::clone(labels);
                        touched.extend(space.config_keys().cloned());
                    }
                    Some(_) => {}
                    None => {
                        touched.extend(space.config_keys().cloned());
                        forgotten.extend(space.pods.drain().map(|(_, entry)| entry));
                    }
                }
                labels.is_some()
            });
            let Inner { spaces, expected, shared, .. } = &mut *inner;
            for (namespace, labels) in &namespaces {
                let begin = || Space::new(expected.clone(), shared.clone(), Arc::clone(labels));
                spaces.entry(namespace.clone()).or_insert_with(begin);
            }
            (touched, forgotten)
        };
        self.enabled.send_replace(Arc::new(namespaces.into_keys().collect()));
        for entry in forgotten {
            entry.wake();
        }
        self.wake_all(touched);
    }

    /// Returns whether Secrets of the namespace may be read.
    pub fn secrets_allowed(&self, namespace: &str) -> bool {
        self.lock().spaces.get(namespace).is_some_and(|space| space.secrets_allowed)
    }

    /// Shows the Secrets of versions in the namespace, all of which are known. They are shown in one step, so that a namespace that may
    /// be read never seems to have none.
    pub fn show_secrets(&self, namespace: &str) {
        self.touch(namespace, |space| !std::mem::replace(&mut space.secrets_allowed, true));
    }

    /// Removes the Secrets of the namespace, which may not be read any more: in one step, so that none counts as deleted.
    pub fn forget_secrets(&self, namespace: &str) {
        self.touch(namespace, |space| {
            space.parts.clear(PartKind::Secret);
            std::mem::replace(&mut space.secrets_allowed, false)
        });
    }

    /// Wakes everything in the namespace, if the change concerns it.
    pub(super) fn touch(&self, namespace: &str, change: impl FnOnce(&mut Space) -> bool) {
        let touched: Vec<ConfigKey> = {
            let mut inner = self.lock();
            let Some(space) = inner.spaces.get_mut(namespace) else { return };
            if !change(space) {
                return;
            }
            space.config_keys().cloned().collect()
        };
        self.wake_all(touched);
    }

    pub(super) fn wake_all(&self, keys: Vec<ConfigKey>) {
        for key in keys {
            self.wake(&key);
            self.notify(&IndexEvent::Config(key));
        }
    }

    // ---- Configs

    /// The config.
    pub fn config(&self, key: &ConfigKey) -> Option<Arc<VersionedConfig>> {
        let inner = self.lock();
        inner.spaces.get(&key.namespace)?.configs.get(key).map(|kept| Arc::clone(&kept.config))
    }

    /// The config, and when the revision of its assignments was first seen here.
    pub fn config_since(&self, key: &ConfigKey) -> Option<(Arc<VersionedConfig>, Instant)> {
        let inner = self.lock();
        inner.spaces.get(&key.namespace)?.configs.get(key).map(|kept| (Arc::clone(&kept.config), kept.since))
    }

    /// All configs.
    pub fn configs(&self) -> Vec<ConfigKey> {
        self.lock().spaces.values().flat_map(|space| space.configs.keys().cloned()).collect()
    }

    /// Returns whether there is such a config that is not kept, because its namespace has too many.
    pub fn is_left_out(&self, key: &ConfigKey) -> bool {
        let inner = self.lock();
        inner.spaces.get(&key.namespace).is_some_and(|space| space.unkept.may_hold(Kind::Configs, key.name.as_str()))
    }

    /// Adds a config from a watch, unless a newer state of it is known: the answer to an own write may come before its watch event.
    pub fn put_config(&self, config: VersionedConfig) {
        self.take_config(config, false, |known, new| {
            known.is_none_or(|known| {
                known.metadata.uid != new.metadata.uid || resource_version(known) < resource_version(new)
            })
        });
    }

    /// Adds a config from a list, which is right even where it is older: etcd may have been restored.
    pub fn replace_config(&self, config: VersionedConfig) {
        self.take_config(config, false, |known, new| {
            known.is_none_or(|known| known.metadata.resource_version != new.metadata.resource_version)
        });
    }

    /// Replaces a config by the answer to an own write. The answer may come after the config is gone, so it adds none.
    pub fn put_written_config(&self, config: VersionedConfig) {
        self.take_config(config, true, |known, new| {
            known.is_some_and(|known| {
                known.metadata.uid == new.metadata.uid && resource_version(known) < resource_version(new)
            })
        });
    }

    /// Takes what a consistent read has found. Returns whether the index has all that it shows. It has not where it knows another object of
    /// this name than the one that was found, or one that is gone: only its watch knows in which order they came.
    pub fn take_read_config(&self, key: &ConfigKey, found: Option<VersionedConfig>) -> bool {
        let Some(found) = found else { return self.config(key).is_none() };
        let (uid, revision) = (found.metadata.uid.clone(), resource_version(&found));
        self.put_written_config(found);
        let known = self.config(key);
        let has = |known: Arc<VersionedConfig>| known.metadata.uid == uid && resource_version(&known) >= revision;
        known.map_or_else(|| self.is_left_out(key), has)
    }

    fn take_config(
        &self,
        mut config: VersionedConfig,
        own: bool,
        take: impl FnOnce(Option<&VersionedConfig>, &VersionedConfig) -> bool,
    ) {
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
        // Users may write large ones, and nothing here depends on the others. A write of the status leaves them as they are.
        let meta = &mut config.metadata;
        let kept = |label: &str, text: &str| NOTICES.contains(&label) && text.len() <= NOTICE_BYTES;
        let mut annotations = meta.annotations.take().unwrap_or_default();
        // Only its presence matters.
        annotations.get_mut(labels::IMPORTING).into_iter().for_each(String::clear);
        let annotations: BTreeMap<_, _> = annotations.into_iter().filter(|(label, text)| kept(label, text)).collect();
        meta.annotations = (!annotations.is_empty()).then_some(annotations);
        (meta.managed_fields, meta.labels) = (None, None);
        (meta.owner_references, meta.finalizers) = (None, None);
        let bytes = size(&config);
        let concerns_pods = {
            let mut inner = self.lock();
            let Some(space) = inner.spaces.get_mut(&key.namespace) else { return };
            let known = space.configs.get(&key);
            if !take(known.map(|known| &*known.config), &config) {
                return;
            }
            // The counts of pods, which change with every report, concern no pod.
            let concerns = known.is_none_or(|known| assignment(&known.config) != assignment(&config));
            let same = known.filter(|known| assignment_revision(&known.config) == assignment_revision(&config));
            let since = same.map_or_else(Instant::now, |known| known.since);
            let (is_known, before) = (known.is_some(), known.map_or(0, |known| known.bytes));
            let name = key.name.as_str();
            let sum = (space.config_bytes - before).saturating_add(bytes);
            // One that is known stays, so that an attack on its size does not remove it from those who use it.
            if sum > CONFIG_BYTES && bytes > before && !own {
                let why = format!("its configs have more than {CONFIG_BYTES} bytes together");
                return space.leave_out(Kind::Configs, &key.namespace, name, &why);
            }
            if !space.takes(Kind::Configs, &key.namespace, name, is_known) {
                return;
            }
            space.config_bytes = sum;
            space.configs.insert(key.clone(), KeptConfig { config: Arc::new(config), bytes, since });
            if bytes < before {
                // There is room for one that has grown, or was left out.
                space.removed(Kind::Configs);
            }
            concerns
        };
        if concerns_pods {
            self.wake(&key);
        }
        self.notify(&IndexEvent::Config(key));
    }

    /// Removes a config.
    pub fn remove_config(&self, key: &ConfigKey) {
        let gone = {
            let mut inner = self.lock();
            let Some(space) = inner.spaces.get_mut(&key.namespace) else { return };
            space.unkept.remove(Kind::Configs, key.name.as_str());
            let Some(gone) = space.configs.remove(key) else { return };
            space.config_bytes -= gone.bytes;
            space.removed(Kind::Configs);
            gone.config
        };
        self.wake(key);
        self.notify(&IndexEvent::ConfigGone(key.clone(), gone));
    }

    // ---- Parts

    /// Returns the configs that are not there, but have parts.
    pub fn configs_of_orphans(&self) -> BTreeSet<ConfigKey> {
        let inner = self.lock();
        let orphans = |space: &Space| {
            let named = space.parts.configs().filter(|key| !space.configs.contains_key(key));
            named.cloned().collect::<Vec<_>>()
        };
        inner.spaces.values().flat_map(orphans).collect()
    }

    /// The objects with labels of this config.
    pub fn parts(&self, key: &ConfigKey) -> Vec<Arc<PartMeta>> {
        self.seen_parts(key).0
    }

    /// The objects with labels of this config, whether Secrets are among those that can be seen, and the kinds of which some are left out.
    pub fn seen_parts(&self, key: &ConfigKey) -> (Vec<Arc<PartMeta>>, bool, Vec<PartKind>) {
        let inner = self.lock();
        let Some(space) = inner.spaces.get(&key.namespace) else { return (Vec::new(), false, Vec::new()) };
        let mut parts = space.parts.of_config(key);
        parts.retain(|part| space.secrets_allowed || part.kind != PartKind::Secret);
        let mut left_out = vec![PartKind::ConfigMap, PartKind::Secret];
        left_out.retain(|part| space.unkept.count(Kind::of_part(*part)) > 0);
        (parts, space.secrets_allowed, left_out)
    }

    /// Adds a part, or replaces it.
    pub fn put_part(&self, key: ConfigKey, part: PartMeta) {
        let before = {
            let mut inner = self.lock();
            let Some(space) = inner.spaces.get_mut(&key.namespace) else { return };
            let known = space.parts.holds(&object_key(&key, &part));
            if !space.takes(Kind::of_part(part.kind), &key.namespace, &part.name, known) {
                return;
            }
            space.parts.put(key.clone(), part)
        };
        match before {
            PutChange::Nothing => {}
            PutChange::Changed => self.notify(&IndexEvent::Config(key)),
            PutChange::MovedFrom(from) => {
                self.notify(&IndexEvent::Config(from));
                self.notify(&IndexEvent::Config(key));
            }
        }
    }

    /// Removes a part.
    pub fn remove_part(&self, object: &ObjectKey) {
        let removed = {
            let mut inner = self.lock();
            let Some(space) = inner.spaces.get_mut(&object.namespace) else { return };
            let kind = Kind::of_part(object.kind);
            space.unkept.remove(kind, &object.name);
            let Some(config) = space.parts.remove(object) else { return };
            space.removed(kind);
            config
        };
        self.notify(&IndexEvent::Config(removed));
    }

    // ---- Published ConfigMaps

    /// The published ConfigMap of the config.
    pub fn published(&self, key: &ConfigKey) -> Option<PublishedMeta> {
        self.lock().spaces.get(&key.namespace)?.published.get(key).cloned()
    }

    /// Sets or removes the published ConfigMap of the config.
    pub fn set_published(&self, key: ConfigKey, meta: Option<PublishedMeta>) {
        {
            let mut inner = self.lock();
            let Some(space) = inner.spaces.get_mut(&key.namespace) else { return };
            let known = space.published.get(&key);
            if known == meta.as_ref() && meta.is_some() {
                return;
            }
            let (name, is_known) = (key.name.as_str(), known.is_some());
            if let Some(meta) = meta {
                if !space.takes(Kind::Published, &key.namespace, name, is_known) {
                    return;
                }
                space.published.insert(key.clone(), meta);
            } else {
                space.unkept.remove(Kind::Published, name);
                if space.published.remove(&key).is_none() {
                    return;
                }
                space.removed(Kind::Published);
            }
        }
        self.notify(&IndexEvent::Config(key));
    }
}

/// Resource versions are numbers that grow: every API server has it so, and KEP-5504 promises it.
fn resource_version(config: &VersionedConfig) -> u64 {
    let version = config.metadata.resource_version.as_deref();
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// What grows with every change of what a pod is assigned.
fn assignment_revision(config: &VersionedConfig) -> (Option<&String>, Option<u64>) {
    (config.metadata.uid.as_ref(), config.status.as_ref().map(|status| status.internal.revision))
}

/// All of a move that the versions assigned to pods depend on. Its evidence, which changes all the time, concerns no pod.
fn assigned_by_move(status: &VersionedConfigStatus) -> impl PartialEq + '_ {
    let InternalStatus { revision, threshold, workloads, selectors, .. } = &status.internal;
    (revision, threshold, workloads, selectors, status.rollout.stage)
}

/// All of a config that the versions assigned to pods depend on.
fn assignment(config: &VersionedConfig) -> impl PartialEq + '_ {
    let status = config.status.as_ref();
    let of_status = status.map(|it| (assigned_by_move(it), &it.current_version, &it.target_version, &it.versions));
    (&config.metadata.uid, &config.metadata.deletion_timestamp, &config.spec.allowed_service_accounts, of_status)
}
