//! The freshness of the index, for a namespace and for the cluster: which changes may have been missed, and how long
//! watches are silent.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::known_policies::KnownPolicies;
use super::namespace_state::NamespaceState;
use super::namespaces::IndexState;
use super::{Index, WatchedKind};
use crate::watch_health::WatchHealth;

/// The time for which a watch has been silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchAge {
    /// The kind, as metrics label it, such as `pods`.
    pub watch: &'static str,
    /// The time since the server last sent something; `None` before a first list.
    pub age: Option<Duration>,
}

/// The time between two checks while something is waited for.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

impl Index {
    /// Adds the health of a watch that does not belong to one namespace.
    pub fn add_health(&self, health: WatchHealth) {
        self.lock().healths.push(health);
    }

    /// Returns whether every kind was listed since the namespace was enabled. Nothing may be decided about it before.
    pub fn is_complete(&self, namespace: &str) -> bool {
        self.lock_namespace(namespace).is_some_and(|state| state.is_complete())
    }

    /// Returns a kind that Nudge needs to read in the namespace and has no right to.
    pub fn forbidden_kind(&self, namespace: &str) -> Option<WatchedKind> {
        self.lock_namespace(namespace)?.forbidden_kind()
    }

    /// Returns a watch that may have missed changes in the namespace: it was interrupted, or must be confirmed, and the
    /// server has not confirmed it since.
    pub fn doubted_watch(&self, namespace: &str) -> Option<&'static str> {
        let inner = self.lock();
        let Some(state) = inner.namespaces.get(namespace) else { return Some("namespaces") };
        let unlisted = state.unlisted.first().map(|kind| kind.as_str());
        unlisted.or_else(|| Some(inner.healths_of(state).find(|health| health.is_doubted())?.what))
    }

    /// Returns a watch of the namespace that has no first list, or was silent for longer than `longest`.
    pub fn silent_watch_in(&self, namespace: &str, longest: Duration) -> Option<&'static str> {
        let inner = self.lock();
        let Some(state) = inner.namespaces.get(namespace) else { return Some("namespaces") };
        let unlisted = state.unlisted.first().map(|kind| kind.as_str());
        unlisted.or_else(|| Some(silent_watch(inner.healths_of(state), longest)?.watch))
    }

    /// Returns when a watch of the namespace was last in doubt for longer than a moment.
    pub fn last_blind(&self, namespace: &str) -> Option<Instant> {
        let inner = self.lock();
        let state = inner.namespaces.get(namespace)?;
        // No pod is hidden by a Secret or an approval that can't be read.
        let own = state.watches.iter().filter(|(kind, _)| kind.is_needed()).map(|(_, health)| health);
        let blind = own.chain(&inner.healths).filter_map(WatchHealth::last_blind).max();
        // Changes before the namespace was enabled were not seen either.
        blind.max(state.completed_at)
    }

    /// Returns the age of each kind of watch, the highest of all namespaces.
    pub fn watch_ages(&self) -> Vec<WatchAge> {
        let inner = self.lock();
        let mut ages: BTreeMap<&'static str, Option<Duration>> = BTreeMap::new();
        let own = inner
            .namespaces
            .values()
            .filter(|state| state.forbidden_kind().is_none())
            .flat_map(NamespaceState::allowed_watches);
        let policies = inner.policies.iter().filter_map(KnownPolicies::watch);
        for health in inner.healths.iter().chain(policies).chain(own) {
            let (age, known) = (health.age(), ages.get(health.what));
            let longest = match known {
                None => age,
                Some(oldest) => oldest.zip(age).map(|(oldest, age)| oldest.max(age)),
            };
            ages.insert(health.what, longest);
        }
        ages.into_iter().map(|(watch, age)| WatchAge { watch, age }).collect()
    }

    /// Returns a watch that makes this replica useless, as others may know more: a watch beyond one namespace that was
    /// silent for longer than `longest`, a watch that has no first list, or a silent one if every namespace has such a
    /// watch.
    pub fn silent_watch(&self, longest: Duration) -> Option<WatchAge> {
        let synced = self.is_synced();
        let inner = self.lock();
        if let Some(watch) = silent_watch(inner.healths.iter(), longest) {
            return Some(watch);
        }
        let mut readable = inner.namespaces.values().filter(|state| state.forbidden_kind().is_none());
        if !synced {
            let unlisted = readable.find_map(|state| state.unlisted.first());
            return unlisted.map(|kind| WatchAge { watch: kind.as_str(), age: None });
        }
        let mut first = None;
        for state in readable.filter(|state| state.is_complete()) {
            first = first.or(Some(silent_watch(state.allowed_watches(), longest)?));
        }
        first
    }

    /// Has the server confirm that everything until `until` is known, and waits for the watches that do not belong to
    /// one namespace. Fails with a watch that was not confirmed within `timeout`. Each namespace is doubted until it is
    /// confirmed, so none waits for another.
    pub async fn confirm(&self, until: Instant, timeout: Duration) -> Result<(), &'static str> {
        let unconfirmed_watch = || {
            let inner = self.lock();
            inner.healths.iter().find(|health| !health.is_confirmed(until)).map(|health| health.what)
        };
        let unconfirmed: Vec<WatchHealth> = {
            let inner = self.lock();
            let readable = inner.namespaces.values().filter(|state| state.forbidden_kind().is_none());
            let healths = inner.healths.iter().chain(readable.flat_map(NamespaceState::allowed_watches));
            healths.filter(|health| !health.is_confirmed(until)).cloned().collect()
        };
        for health in &unconfirmed {
            health.doubt();
            health.request_answer();
        }
        let confirmed = async {
            while unconfirmed_watch().is_some() {
                tokio::time::sleep(CHECK_INTERVAL).await;
            }
        };
        let _ = tokio::time::timeout(timeout, confirmed).await;
        unconfirmed_watch().map_or(Ok(()), Err)
    }

    /// Waits until every kind was listed at least once.
    pub async fn wait_until_synced(&self) {
        while !self.is_synced() {
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    /// Returns whether every kind was listed at least once, but in namespaces that can't be read: Nudge has no right,
    /// or their lists fail again and again while another namespace can be read. It stays so: a namespace that becomes
    /// incomplete is held on its own.
    pub fn is_synced(&self) -> bool {
        if self.synced.load(Ordering::Relaxed) {
            return true;
        }
        let inner = self.lock();
        let is_listed = !inner.healths.is_empty() && inner.healths.iter().all(|health| health.age().is_some());
        let is_settled = |state: &NamespaceState| state.is_complete() || state.forbidden_kind().is_some();
        // If nothing can be listed, that is not the fault of a namespace.
        let synced = is_listed
            && (inner.namespaces.is_empty() || inner.namespaces.values().any(is_settled))
            && inner.namespaces.values().all(|state| is_settled(state) || state.is_hopeless());
        self.synced.store(synced, Ordering::Relaxed);
        synced
    }
}

impl IndexState {
    /// Returns the healths that the knowledge of a namespace depends on.
    fn healths_of<'a>(&'a self, state: &'a NamespaceState) -> impl Iterator<Item = &'a WatchHealth> {
        self.healths.iter().chain(state.allowed_watches())
    }
}

fn silent_watch<'a>(healths: impl Iterator<Item = &'a WatchHealth>, longest: Duration) -> Option<WatchAge> {
    let mut ages = healths.map(|health| WatchAge { watch: health.what, age: health.age() });
    ages.find(|watch| watch.age.is_none_or(|age| age > longest))
}
