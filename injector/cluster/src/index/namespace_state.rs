//! The state of one enabled namespace. All of it is forgotten in one step.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::Instant;

use nudge_api::{VersionApproval, VersionedConfig};
use nudge_core::keys::{ConfigKey, ObjectKey, PodKey, PublishedMeta};
use serde::Serialize;

use super::WatchedKind;
use super::left_out::LeftOutObjects;
use super::parts::Parts;
use super::pod_entry::PodEntry;
use crate::watch_health::WatchHealth;

/// The maximum size of all configs that are kept of a namespace.
pub(super) const MAX_CONFIG_BYTES: usize = 64 * 1024 * 1024;

/// The labels of a namespace.
pub type Labels = BTreeMap<String, String>;

/// The state of an enabled namespace.
pub(super) struct NamespaceState {
    /// The time when the namespace was enabled; a list that began earlier may lack its objects.
    pub(super) enabled_at: Instant,
    /// The kinds that were not listed yet.
    pub(super) unlisted: BTreeSet<WatchedKind>,
    /// The time when the last kind was listed.
    pub(super) completed_at: Option<Instant>,
    /// The watches, including the watches that the namespace shares with other namespaces.
    pub(super) watches: Vec<(WatchedKind, WatchHealth)>,
    /// Whether the log says that Nudge has no rights here.
    pub(super) reported_forbidden: bool,
    /// Whether Secrets may be read.
    pub(super) secrets_allowed: bool,
    pub(super) configs: HashMap<ConfigKey, KeptConfig>,
    /// The size of all configs together.
    pub(super) config_bytes: usize,
    pub(super) parts: Parts,
    pub(super) published: HashMap<ConfigKey, PublishedMeta>,
    pub(super) pods: HashMap<PodKey, PodEntry>,
    /// The pods that use each config, by name.
    pub(super) pods_by_config: HashMap<ConfigKey, BTreeMap<String, PodEntry>>,
    /// The pods of each node.
    pub(super) pods_by_node: HashMap<String, HashSet<PodKey>>,
    /// The time when the report of a pod was last seen to change.
    pub(super) reported_at: Option<Instant>,
    /// The uids of service accounts, by their names.
    pub(super) accounts: HashMap<Box<str>, Box<str>>,
    /// The approvals by their names, each with its config.
    pub(super) approvals: HashMap<Box<str>, (ConfigKey, Arc<VersionApproval>)>,
    pub(super) left_out: LeftOutObjects,
    pub(super) labels: Arc<Labels>,
}

/// A config, its size as JSON, and when its revision was first seen.
pub(super) struct KeptConfig {
    pub(super) config: Arc<VersionedConfig>,
    pub(super) bytes: usize,
    pub(super) since: tokio::time::Instant,
}

impl NamespaceState {
    pub(super) fn new(
        unlisted: BTreeSet<WatchedKind>,
        watches: Vec<(WatchedKind, WatchHealth)>,
        labels: Arc<Labels>,
    ) -> Self {
        Self {
            enabled_at: Instant::now(),
            unlisted,
            completed_at: None,
            watches,
            reported_forbidden: false,
            secrets_allowed: false,
            configs: HashMap::new(),
            config_bytes: 0,
            parts: Parts::default(),
            published: HashMap::new(),
            pods: HashMap::new(),
            reported_at: None,
            pods_by_config: HashMap::new(),
            pods_by_node: HashMap::new(),
            accounts: HashMap::new(),
            approvals: HashMap::new(),
            left_out: LeftOutObjects::default(),
            labels,
        }
    }

    /// Returns whether every kind was listed since the namespace was enabled.
    pub(super) fn is_complete(&self) -> bool {
        self.unlisted.is_empty()
    }

    /// Notes that the kind was listed, or need not be.
    pub(super) fn settle(&mut self, kind: WatchedKind) {
        if self.unlisted.remove(&kind) && self.is_complete() {
            self.completed_at = Some(Instant::now());
        }
    }

    /// Returns a kind that Nudge needs to read and has no right to.
    pub(super) fn forbidden_kind(&self) -> Option<WatchedKind> {
        let needed = self.watches.iter().filter(|(kind, _)| kind.is_needed());
        needed.filter(|(_, health)| health.is_forbidden()).map(|(kind, _)| *kind).next()
    }

    pub(super) fn approvals_of(&self, key: &ConfigKey) -> impl Iterator<Item = Arc<VersionApproval>> {
        self.approvals.values().filter(move |(config, _)| config == key).map(|(_, approval)| Arc::clone(approval))
    }

    /// Returns whether a kind could not be listed for many times in a row.
    pub(super) fn is_hopeless(&self) -> bool {
        let mut unlisted = self.watches.iter().filter(|(kind, _)| self.unlisted.contains(kind));
        unlisted.any(|(_, health)| health.is_hopeless())
    }

    /// Returns the watches that should work. A kind that is not needed counts only if it may be read.
    pub(super) fn allowed_watches(&self) -> impl Iterator<Item = &WatchHealth> {
        let allowed = self.watches.iter().filter(|(kind, health)| kind.is_needed() || !health.is_forbidden());
        allowed.map(|(_, health)| health)
    }

    /// Returns the keys of all configs that exist, are used by pods, or have decisions of users.
    pub(super) fn config_keys(&self) -> impl Iterator<Item = &ConfigKey> {
        let approved = self.approvals.values().map(|(key, _)| key);
        let keys: BTreeSet<&ConfigKey> =
            self.configs.keys().chain(self.pods_by_config.keys()).chain(approved).collect();
        keys.into_iter()
    }

    fn count(&self, kind: WatchedKind) -> usize {
        match kind {
            WatchedKind::Configs => self.configs.len(),
            WatchedKind::Published => self.published.len(),
            WatchedKind::Pods => self.pods.len(),
            WatchedKind::Accounts => self.accounts.len(),
            WatchedKind::Approvals => self.approvals.len(),
            WatchedKind::ConfigMaps | WatchedKind::Secrets => kind.part().map_or(0, |part| self.parts.count(part)),
        }
    }

    /// Returns whether the object is kept, or counted among those that are left out.
    pub(super) fn has(&self, kind: WatchedKind, namespace: &str, name: &str) -> bool {
        let config = || ConfigKey::parse(namespace, name).ok();
        let kept = match kind {
            WatchedKind::Configs => config().is_some_and(|key| self.configs.contains_key(&key)),
            WatchedKind::Published => config().is_some_and(|key| self.published.contains_key(&key)),
            WatchedKind::Pods => self.pods.contains_key(&PodKey::new(namespace, name)),
            WatchedKind::Accounts => self.accounts.contains_key(name),
            WatchedKind::Approvals => self.approvals.contains_key(name),
            WatchedKind::ConfigMaps | WatchedKind::Secrets => {
                kind.part().is_some_and(|part| self.parts.contains(&ObjectKey::new(part, namespace, name)))
            }
        };
        kept || self.left_out.has_name(kind, name)
    }

    /// Returns whether an object can be kept; a known object always can. An object that can't be kept is counted, and
    /// reported once.
    pub(super) fn has_room(&mut self, kind: WatchedKind, namespace: &str, name: &str, is_known: bool) -> bool {
        if is_known || self.count(kind) < kind.max_objects() {
            self.left_out.remove(kind, name);
            return true;
        }
        self.leave_out(kind, namespace, name, &format!("it has more than {} of them", kind.max_objects()));
        false
    }

    pub(super) fn leave_out(&mut self, kind: WatchedKind, namespace: &str, name: &str, cause: &str) {
        if self.left_out.add(kind, name) {
            let kind = kind.as_str();
            tracing::error!(namespace, kind, name, why = cause, "objects of the namespace are left out");
        }
    }

    /// Has the objects of a kind listed again if some are left out, since there is room now.
    pub(super) fn relist_left_out(&self, kind: WatchedKind) {
        if self.left_out.count(kind) > 0 {
            let watches = self.watches.iter().filter(|(watched, _)| *watched == kind);
            watches.for_each(|(_, health)| health.request_relist_later());
        }
    }

    /// Returns the names of all kept objects of a kind.
    pub(super) fn names(&self, kind: WatchedKind) -> Vec<String> {
        let config_names = |key: &ConfigKey| key.name.to_string();
        match kind {
            WatchedKind::Configs => self.configs.keys().map(config_names).collect(),
            WatchedKind::Published => self.published.keys().map(config_names).collect(),
            WatchedKind::Pods => self.pods.keys().map(|key| key.name.clone()).collect(),
            WatchedKind::Accounts => self.accounts.keys().map(ToString::to_string).collect(),
            WatchedKind::Approvals => self.approvals.keys().map(ToString::to_string).collect(),
            WatchedKind::ConfigMaps | WatchedKind::Secrets => {
                let part = kind.part().into_iter();
                part.flat_map(|part| self.parts.of_kind(part)).map(|key: &ObjectKey| key.name.clone()).collect()
            }
        }
    }
}

/// Returns the size of a value as JSON, in bytes.
pub(super) fn json_size(value: &impl Serialize) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Counting does not fail. A value that can't be written has no known size.
    serde_json::to_writer(&mut count, value).map_or(usize::MAX, |()| count.0)
}
