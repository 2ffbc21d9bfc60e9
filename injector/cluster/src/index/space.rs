//! What is known of one enabled namespace. It begins with the namespace, and all of it is forgotten in one step.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::Instant;

use nudge_api::{VersionApproval, VersionedConfig};
use nudge_core::keys::{ConfigKey, ObjectKey, PodKey, PublishedMeta};
use serde::Serialize;

use super::Kind;
use super::parts::Parts;
use super::pod_entry::PodEntry;
use super::unkept::Unkept;
use crate::watch_health::WatchHealth;

/// The maximum of bytes of all configs that are kept of a namespace.
pub(super) const CONFIG_BYTES: usize = 64 * 1024 * 1024;

/// The labels of a namespace.
pub type Labels = BTreeMap<String, String>;

/// An enabled namespace.
pub(super) struct Space {
    /// When it was enabled: a list that began earlier may have left its objects out.
    pub(super) since: Instant,
    /// What was not listed yet.
    pub(super) waiting: BTreeSet<Kind>,
    /// When the last of it was listed.
    pub(super) completed: Option<Instant>,
    /// Its watches, also those that it shares with others.
    pub(super) watches: Vec<(Kind, WatchHealth)>,
    /// Whether the log says that Nudge has no rights here.
    pub(super) reported_forbidden: bool,
    /// Whether its Secrets may be read.
    pub(super) secrets_allowed: bool,
    pub(super) configs: HashMap<ConfigKey, KeptConfig>,
    /// The sizes of all configs together.
    pub(super) config_bytes: usize,
    pub(super) parts: Parts,
    pub(super) published: HashMap<ConfigKey, PublishedMeta>,
    pub(super) pods: HashMap<PodKey, PodEntry>,
    /// The pods that use each config, by name.
    pub(super) pods_by_config: HashMap<ConfigKey, BTreeMap<String, PodEntry>>,
    /// The pods of each node.
    pub(super) pods_by_node: HashMap<String, HashSet<PodKey>>,
    /// When the report of any of its pods was last seen to change.
    pub(super) reported: Option<Instant>,
    /// The uids of service accounts, by their names.
    pub(super) accounts: HashMap<Box<str>, Box<str>>,
    /// What users have decided, by the names of the objects, each with its config.
    pub(super) approvals: HashMap<Box<str>, (ConfigKey, Arc<VersionApproval>)>,
    pub(super) unkept: Unkept,
    /// The labels of the namespace.
    pub(super) labels: Arc<Labels>,
}

/// A config, its size as JSON, and when its revision was first seen.
pub(super) struct KeptConfig {
    pub(super) config: Arc<VersionedConfig>,
    pub(super) bytes: usize,
    pub(super) since: tokio::time::Instant,
}

impl Space {
    pub(super) fn new(waiting: BTreeSet<Kind>, watches: Vec<(Kind, WatchHealth)>, labels: Arc<Labels>) -> Self {
        Self {
            since: Instant::now(),
            waiting,
            completed: None,
            watches,
            reported_forbidden: false,
            secrets_allowed: false,
            configs: HashMap::new(),
            config_bytes: 0,
            parts: Parts::default(),
            published: HashMap::new(),
            pods: HashMap::new(),
            reported: None,
            pods_by_config: HashMap::new(),
            pods_by_node: HashMap::new(),
            accounts: HashMap::new(),
            approvals: HashMap::new(),
            unkept: Unkept::default(),
            labels,
        }
    }

    /// Everything was listed since the namespace was enabled.
    pub(super) fn is_complete(&self) -> bool {
        self.waiting.is_empty()
    }

    /// This was listed, or need not be. Returns whether the namespace is complete now and was not before.
    pub(super) fn settle(&mut self, kind: Kind) -> bool {
        let completed = self.waiting.remove(&kind) && self.is_complete();
        if completed {
            self.completed = Some(Instant::now());
        }
        completed
    }

    /// What Nudge has no right to read, which it needs.
    pub(super) fn forbidden(&self) -> Option<Kind> {
        let needed = self.watches.iter().filter(|(kind, _)| kind.is_needed());
        needed.filter(|(_, health)| health.is_forbidden()).map(|(kind, _)| *kind).next()
    }

    /// What users have decided about versions of the config.
    pub(super) fn approvals_of(&self, key: &ConfigKey) -> impl Iterator<Item = Arc<VersionApproval>> {
        self.approvals.values().filter(move |(config, _)| config == key).map(|(_, approval)| Arc::clone(approval))
    }

    /// The API server refuses to show what users have decided.
    pub(super) fn hides_approvals(&self) -> bool {
        self.watches.iter().any(|(kind, health)| *kind == Kind::Approvals && health.is_forbidden())
    }

    /// Something of it can't be listed, again and again.
    pub(super) fn is_hopeless(&self) -> bool {
        let waiting = self.watches.iter().filter(|(kind, _)| self.waiting.contains(kind));
        waiting.into_iter().any(|(_, health)| health.is_hopeless())
    }

    /// The watches that should work: those of what is not needed only where it may be read.
    pub(super) fn allowed_watches(&self) -> impl Iterator<Item = &WatchHealth> {
        let all = self.watches.iter().filter(|(kind, health)| kind.is_needed() || !health.is_forbidden());
        all.map(|(_, health)| health)
    }

    /// The configs, those that pods use, and those that users have decided about.
    pub(super) fn config_keys(&self) -> impl Iterator<Item = &ConfigKey> {
        let approved = self.approvals.values().map(|(key, _)| key);
        let all: BTreeSet<&ConfigKey> = self.configs.keys().chain(self.pods_by_config.keys()).chain(approved).collect();
        all.into_iter()
    }

    fn count(&self, kind: Kind) -> usize {
        match kind {
            Kind::Configs => self.configs.len(),
            Kind::Published => self.published.len(),
            Kind::Pods => self.pods.len(),
            Kind::Accounts => self.accounts.len(),
            Kind::Approvals => self.approvals.len(),
            Kind::ConfigMaps | Kind::Secrets => kind.part().map_or(0, |part| self.parts.count(part)),
        }
    }

    /// Returns whether the object is kept, or counted among those that are left out.
    pub(super) fn has(&self, kind: Kind, namespace: &str, name: &str) -> bool {
        let config = || ConfigKey::parse(namespace, name).ok();
        let kept = match kind {
            Kind::Configs => config().is_some_and(|key| self.configs.contains_key(&key)),
            Kind::Published => config().is_some_and(|key| self.published.contains_key(&key)),
            Kind::Pods => self.pods.contains_key(&PodKey::new(namespace, name)),
            Kind::Accounts => self.accounts.contains_key(name),
            Kind::Approvals => self.approvals.contains_key(name),
            Kind::ConfigMaps | Kind::Secrets => {
                kind.part().is_some_and(|part| self.parts.holds(&ObjectKey::new(part, namespace, name)))
            }
        };
        kept || self.unkept.names(kind, name)
    }

    /// Returns whether one more object can be kept, which is `known` or not. One that can't is counted, and reported once.
    pub(super) fn takes(&mut self, kind: Kind, namespace: &str, name: &str, known: bool) -> bool {
        if known || self.count(kind) < kind.most() {
            self.unkept.remove(kind, name);
            return true;
        }
        self.leave_out(kind, namespace, name, &format!("it has more than {} of them", kind.most()));
        false
    }

    pub(super) fn leave_out(&mut self, kind: Kind, namespace: &str, name: &str, why: &str) {
        if self.unkept.add(kind, name) {
            let kind = kind.as_str();
            tracing::error!(namespace, kind, name, why, "objects of the namespace are left out");
        }
    }

    /// An object is gone, so there is room for one that was left out: a list finds it.
    pub(super) fn removed(&self, kind: Kind) {
        if self.unkept.count(kind) > 0 {
            let watches = self.watches.iter().filter(|(watched, _)| *watched == kind);
            watches.for_each(|(_, health)| health.request_relist_later());
        }
    }

    /// The names of all objects of a kind that are kept.
    pub(super) fn names(&self, kind: Kind) -> Vec<String> {
        let config_names = |key: &ConfigKey| key.name.to_string();
        match kind {
            Kind::Configs => self.configs.keys().map(config_names).collect(),
            Kind::Published => self.published.keys().map(config_names).collect(),
            Kind::Pods => self.pods.keys().map(|key| key.name.clone()).collect(),
            Kind::Accounts => self.accounts.keys().map(ToString::to_string).collect(),
            Kind::Approvals => self.approvals.keys().map(ToString::to_string).collect(),
            Kind::ConfigMaps | Kind::Secrets => {
                let part = kind.part().into_iter();
                part.flat_map(|part| self.parts.all(part)).map(|key: &ObjectKey| key.name.clone()).collect()
            }
        }
    }
}

/// Bytes of a value as JSON.
pub(super) fn size(value: &impl Serialize) -> usize {
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
    // Counting does not fail. What can't be written has no size that is known.
    serde_json::to_writer(&mut count, value).map_or(usize::MAX, |()| count.0)
}
