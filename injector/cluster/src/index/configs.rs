//! The configs, with the metadata of their parts and of their published ConfigMaps.

use std::collections::BTreeSet;
use std::sync::Arc;

use nudge_api::{InternalStatus, PartKind, VersionedConfig, VersionedConfigStatus};
use nudge_core::keys::{ConfigKey, ObjectKey, PartMeta, PublishedMeta};
use nudge_core::requester::MAX_REQUESTER_BYTES;
use nudge_protocol::error_chain::chain;
use nudge_protocol::labels;
use tokio::time::Instant;

use super::namespace_state::{KeptConfig, MAX_CONFIG_BYTES, NamespaceState, json_size};
use super::parts::{PutChange, object_key};
use super::{Index, IndexEvent, WatchedKind};

/// The annotations of a config that are kept: those that Nudge has written with an HMAC, and the one of an import.
const KEPT_ANNOTATIONS: [&str; 5] =
    [labels::SOURCE_GONE, labels::REQUESTED_BY, labels::OVERRIDDEN_BY, labels::RETRY, labels::IMPORTING];
/// The maximum size of an annotation that is kept.
const MAX_ANNOTATION_BYTES: usize = MAX_REQUESTER_BYTES;

/// The origin of a config's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateOrigin {
    /// A list, which is right even if its state is older: etcd may have been restored.
    List,
    /// A watch. The answer to a write of this process may come before the watch event.
    Watch,
    /// The answer to a write of this process, which may come after the config is gone.
    Write,
}

impl StateOrigin {
    /// Returns whether a state replaces the known state.
    fn replaces(self, known: Option<&VersionedConfig>, new: &VersionedConfig) -> bool {
        let Some(known) = known else { return self != Self::Write };
        let is_same = known.metadata.uid == new.metadata.uid;
        let is_newer = resource_version(known) < resource_version(new);
        match self {
            Self::List => known.metadata.resource_version != new.metadata.resource_version,
            Self::Watch => !is_same || is_newer,
            Self::Write => is_same && is_newer,
        }
    }
}

/// The parts of a config that Nudge may read.
#[derive(Debug, Default)]
pub struct VisibleParts {
    /// The metadata of the visible objects.
    pub parts: Vec<Arc<PartMeta>>,
    /// Whether Secrets may be read.
    pub secrets: bool,
    /// The kinds with objects in the namespace that are left out.
    pub left_out: Vec<PartKind>,
}

impl Index {
    /// Returns the config, as the watch last showed it.
    pub fn config(&self, key: &ConfigKey) -> Option<Arc<VersionedConfig>> {
        self.config_since(key).map(|(config, _)| config)
    }

    /// Returns the config, and when the revision of its assignments was first seen here.
    pub fn config_since(&self, key: &ConfigKey) -> Option<(Arc<VersionedConfig>, Instant)> {
        self.lock_namespace(&key.namespace)?.configs.get(key).map(|kept| (Arc::clone(&kept.config), kept.since))
    }

    /// Returns the keys of all configs.
    pub fn configs(&self) -> Vec<ConfigKey> {
        self.lock().namespaces.values().flat_map(|state| state.configs.keys().cloned()).collect()
    }

    /// Returns whether the config may exist and is not kept, because its namespace has too many.
    pub fn is_left_out(&self, key: &ConfigKey) -> bool {
        let state = self.lock_namespace(&key.namespace);
        state.is_some_and(|state| state.left_out.may_have(WatchedKind::Configs, key.name.as_str()))
    }

    /// Adds a config from a watch, unless a newer state of it is known.
    pub fn put_config(&self, config: VersionedConfig) {
        self.put_config_from(StateOrigin::Watch, config);
    }

    /// Replaces a config by the answer to a write of this process.
    pub fn put_written_config(&self, config: VersionedConfig) {
        self.put_config_from(StateOrigin::Write, config);
    }

    /// Adds the result of a consistent read. Returns whether the index is now at least as new as the read. It is not if
    /// the index knows another object of this name, or knows that the object was deleted: only the watch knows the
    /// order of the objects.
    pub fn put_read_config(&self, key: &ConfigKey, read: Option<VersionedConfig>) -> bool {
        let Some(read) = read else { return self.config(key).is_none() };
        let (uid, version) = (read.metadata.uid.clone(), resource_version(&read));
        self.put_written_config(read);
        let is_current =
            |config: Arc<VersionedConfig>| config.metadata.uid == uid && resource_version(&config) >= version;
        self.config(key).map_or_else(|| self.is_left_out(key), is_current)
    }

    /// Adds a config, unless what is known of it stays.
    pub(crate) fn put_config_from(&self, origin: StateOrigin, mut config: VersionedConfig) {
        let key = match ConfigKey::of(&config.metadata) {
            Ok(key) => key,
            Err(error) => {
                let namespace = config.metadata.namespace.as_deref();
                let error = chain(&error);
                return tracing::warn!(namespace, error, "VersionedConfig ignored; its name is not allowed");
            }
        };
        drop_unused_metadata(&mut config);
        let bytes = json_size(&config);
        let concerns_pods = {
            let Some(mut state) = self.lock_namespace(&key.namespace) else { return };
            let before = state.configs.get(&key);
            if !origin.replaces(before.map(|before| &*before.config), &config) {
                return;
            }
            // The counts of pods, which change with every report, concern no pod.
            let concerns_pods = before.is_none_or(|before| assignment(&before.config) != assignment(&config));
            let unchanged = before.filter(|before| assignment_revision(&before.config) == assignment_revision(&config));
            let since = unchanged.map_or_else(Instant::now, |before| before.since);
            let (is_known, known_bytes) = (before.is_some(), before.map_or(0, |before| before.bytes));
            let name = key.name.as_str();
            let sum = (state.config_bytes - known_bytes).saturating_add(bytes);
            // The last state of a known config stays, so that an attack on its size does not remove it from those who
            // use it.
            if sum > MAX_CONFIG_BYTES && bytes > known_bytes && origin != StateOrigin::Write {
                let cause = format!("its configs have more than {MAX_CONFIG_BYTES} bytes together");
                return state.leave_out(WatchedKind::Configs, &key.namespace, name, &cause);
            }
            if !state.has_room(WatchedKind::Configs, &key.namespace, name, is_known) {
                return;
            }
            state.config_bytes = sum;
            state.configs.insert(key.clone(), KeptConfig { config: Arc::new(config), bytes, since });
            if bytes < known_bytes {
                // There is room for a config that has grown, or was left out.
                state.relist_left_out(WatchedKind::Configs);
            }
            concerns_pods
        };
        if concerns_pods {
            self.wake(&key);
        }
        self.notify(&IndexEvent::Config(key));
    }

    /// Removes a config.
    pub fn remove_config(&self, key: &ConfigKey) {
        let remove = |state: &mut NamespaceState| {
            let removed = state.configs.remove(key)?;
            state.config_bytes -= removed.bytes;
            Some(removed.config)
        };
        let (kind, name) = (WatchedKind::Configs, key.name.as_str());
        let Some(removed) = self.remove_object(kind, &key.namespace, name, remove) else { return };
        self.wake(key);
        self.notify(&IndexEvent::ConfigGone(key.clone(), removed));
    }

    /// Returns the configs that do not exist, but have parts.
    pub fn configs_of_orphans(&self) -> BTreeSet<ConfigKey> {
        let inner = self.lock();
        let orphans = |state: &NamespaceState| {
            let named = state.parts.configs().filter(|key| !state.configs.contains_key(key));
            named.cloned().collect::<Vec<_>>()
        };
        inner.namespaces.values().flat_map(orphans).collect()
    }

    /// Returns the objects with labels of this config.
    pub fn parts(&self, key: &ConfigKey) -> Vec<Arc<PartMeta>> {
        self.visible_parts(key).parts
    }

    /// Returns the objects with labels of this config that Nudge may read, and the objects that it does not show.
    pub fn visible_parts(&self, key: &ConfigKey) -> VisibleParts {
        let Some(state) = self.lock_namespace(&key.namespace) else { return VisibleParts::default() };
        let secrets = state.secrets_allowed;
        let mut parts = state.parts.of_config(key);
        parts.retain(|part| secrets || part.kind != PartKind::Secret);
        let mut left_out = vec![PartKind::ConfigMap, PartKind::Secret];
        left_out.retain(|part| state.left_out.count(WatchedKind::of_part(*part)) > 0);
        VisibleParts { parts, secrets, left_out }
    }

    /// Adds a part, or replaces it.
    pub fn put_part(&self, key: ConfigKey, part: PartMeta) {
        let change = {
            let Some(mut state) = self.lock_namespace(&key.namespace) else { return };
            let is_known = state.parts.contains(&object_key(&key, &part));
            if !state.has_room(WatchedKind::of_part(part.kind), &key.namespace, &part.name, is_known) {
                return;
            }
            state.parts.put(key.clone(), part)
        };
        match change {
            PutChange::Nothing => return,
            PutChange::Changed => {}
            PutChange::MovedFrom(other) => self.notify(&IndexEvent::Config(other)),
        }
        self.notify(&IndexEvent::Config(key));
    }

    /// Removes a part.
    pub fn remove_part(&self, object: &ObjectKey) {
        let (kind, remove) =
            (WatchedKind::of_part(object.kind), |state: &mut NamespaceState| state.parts.remove(object));
        let Some(config) = self.remove_object(kind, &object.namespace, &object.name, remove) else { return };
        self.notify(&IndexEvent::Config(config));
    }

    /// Returns the metadata of the config's published ConfigMap.
    pub fn published_meta(&self, key: &ConfigKey) -> Option<PublishedMeta> {
        self.lock_namespace(&key.namespace)?.published.get(key).cloned()
    }

    /// Sets or removes the metadata of the config's published ConfigMap.
    pub fn set_published_meta(&self, key: ConfigKey, meta: Option<PublishedMeta>) {
        let (kind, name) = (WatchedKind::Published, key.name.as_str());
        if let Some(meta) = meta {
            let Some(mut state) = self.lock_namespace(&key.namespace) else { return };
            let before = state.published.get(&key);
            if before == Some(&meta) {
                return;
            }
            let is_known = before.is_some();
            if !state.has_room(kind, &key.namespace, name, is_known) {
                return;
            }
            state.published.insert(key.clone(), meta);
        } else {
            let remove = |state: &mut NamespaceState| state.published.remove(&key);
            if self.remove_object(kind, &key.namespace, name, remove).is_none() {
                return;
            }
        }
        self.notify(&IndexEvent::Config(key));
    }
}

/// Drops metadata that nothing here depends on, since users may write much of it. Writes of the status do not change it
/// in the cluster.
fn drop_unused_metadata(config: &mut VersionedConfig) {
    let meta = &mut config.metadata;
    let is_kept = |label: &str, text: &str| KEPT_ANNOTATIONS.contains(&label) && text.len() <= MAX_ANNOTATION_BYTES;
    let mut annotations = meta.annotations.take().unwrap_or_default();
    // Only the presence of this annotation matters.
    annotations.get_mut(labels::IMPORTING).into_iter().for_each(String::clear);
    annotations.retain(|label, text| is_kept(label, text));
    meta.annotations = (!annotations.is_empty()).then_some(annotations);
    let baseline = meta.labels.take().and_then(|mut map| map.remove_entry(labels::BASELINE));
    meta.labels = baseline.filter(|(_, value)| value.len() <= MAX_ANNOTATION_BYTES).map(|entry| [entry].into());
    (meta.managed_fields, meta.owner_references, meta.finalizers) = (None, None, None);
}

/// Returns the resource version, which is a number that grows: every API server does it so, and KEP-5504 promises it.
fn resource_version(config: &VersionedConfig) -> u64 {
    let version = config.metadata.resource_version.as_deref();
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// Returns the revision, which grows with every change of the versions that pods are assigned.
fn assignment_revision(config: &VersionedConfig) -> (Option<&String>, Option<u64>) {
    (config.metadata.uid.as_ref(), config.status.as_ref().map(|status| status.internal.revision))
}

/// Returns all of a move that the versions of pods depend on. Its evidence, which changes all the time, concerns no
/// pod.
fn assigned_by_move(status: &VersionedConfigStatus) -> impl PartialEq + '_ {
    let InternalStatus { revision, threshold, workloads, selectors, .. } = &status.internal;
    (revision, threshold, workloads, selectors, status.rollout.stage)
}

/// Returns all of a config that the versions of pods depend on.
fn assignment(config: &VersionedConfig) -> impl PartialEq + '_ {
    let VersionedConfig { metadata, spec, status } = config;
    let by_status = status
        .as_ref()
        .map(|status| (assigned_by_move(status), &status.current_version, &status.target_version, &status.versions));
    (&metadata.uid, &metadata.deletion_timestamp, &spec.allowed_service_accounts, by_status)
}
