//! Whether what is known is what the API server has: of a namespace, and of the cluster as a whole.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::known_policies::KnownPolicies;
use super::space::Space;
use super::state::Inner;
use super::{Index, Kind};
use crate::watch_health::WatchHealth;

/// What is watched, and how long ago the server has said something about it.
type Silent = (&'static str, Option<Duration>);

impl Index {
    /// Adds the health of a watch that does not belong to one namespace.
    pub fn add_health(&self, health: WatchHealth) {
        self.lock().healths.push(health);
    }

    // ---- Of a namespace

    /// Returns whether everything in the namespace was listed since it was enabled. Nothing may be decided about it before.
    pub fn is_complete(&self, namespace: &str) -> bool {
        self.lock().spaces.get(namespace).is_some_and(Space::is_complete)
    }

    /// What Nudge needs to read in the namespace and has no right to.
    pub fn forbidden(&self, namespace: &str) -> Option<Kind> {
        self.lock().spaces.get(namespace)?.forbidden()
    }

    /// What may have been missed in the namespace: its watch was interrupted, or is to be confirmed, and the server has not confirmed it yet.
    pub fn doubted(&self, namespace: &str) -> Option<&'static str> {
        let inner = self.lock();
        let Some(space) = inner.spaces.get(namespace) else { return Some("namespaces") };
        let unlisted = space.waiting.first().map(|kind| kind.as_str());
        let mut doubted = inner.healths_of(space).filter(|health| health.is_doubted());
        unlisted.or_else(|| doubted.next().map(|health| health.what))
    }

    /// What is not known in the namespace, or was not confirmed for longer than `longest`.
    pub fn silent_in(&self, namespace: &str, longest: Duration) -> Option<&'static str> {
        let inner = self.lock();
        let Some(space) = inner.spaces.get(namespace) else { return Some("namespaces") };
        let unlisted = space.waiting.first().map(|kind| kind.as_str());
        unlisted.or_else(|| Some(silent(inner.healths_of(space), longest)?.0))
    }

    /// When a watch of the namespace was last in doubt for longer than a moment.
    pub fn last_blind(&self, namespace: &str) -> Option<Instant> {
        let inner = self.lock();
        let space = inner.spaces.get(namespace)?;
        // No pod is hidden by a Secret or an approval that can't be read.
        let own = space.watches.iter().filter(|(kind, _)| kind.is_needed()).map(|(_, health)| health);
        let blind = own.chain(&inner.healths).filter_map(WatchHealth::last_blind).max();
        // What happened before the namespace was enabled was not seen either.
        blind.max(space.completed)
    }

    // ---- Of the cluster

    /// How long ago each kind of watch heard from the server, the longest of all namespaces; `None` before a first list.
    pub fn ages(&self) -> Vec<Silent> {
        let inner = self.lock();
        let mut ages: BTreeMap<&'static str, Option<Duration>> = BTreeMap::new();
        let own = inner.spaces.values().filter(|space| space.forbidden().is_none()).flat_map(Space::allowed_watches);
        let policies = inner.policies.iter().filter_map(KnownPolicies::watch);
        for health in inner.healths.iter().chain(policies).chain(own) {
            let (age, known) = (health.age(), ages.get(health.what));
            let longest = match known {
                None => age,
                Some(known) => known.zip(age).map(|(known, age)| known.max(age)),
            };
            ages.insert(health.what, longest);
        }
        ages.into_iter().collect()
    }

    /// What makes this replica useless, as others may know more: a watch that does not belong to one namespace has heard nothing for
    /// longer than `longest`, or one of every namespace, or not everything was listed yet.
    pub fn silent(&self, longest: Duration) -> Option<Silent> {
        let synced = self.is_synced();
        let inner = self.lock();
        if let Some(silent) = silent(inner.healths.iter(), longest) {
            return Some(silent);
        }
        let mut readable = inner.spaces.values().filter(|space| space.forbidden().is_none());
        if !synced {
            let open = readable.find_map(|space| space.waiting.first());
            return open.map(|kind| (kind.as_str(), None));
        }
        let mut first = None;
        for space in readable.filter(|space| space.is_complete()) {
            first = first.or(Some(silent(space.allowed_watches(), longest)?));
        }
        first
    }

    /// Has the server confirm that everything until `until` is known, and waits for the watches that do not belong to one namespace; fails
    /// with one that it has not confirmed within `longest`. Each namespace is doubted until it is confirmed, so none waits for another.
    pub async fn confirm(&self, until: Instant, longest: Duration) -> Result<(), &'static str> {
        let open = || {
            let inner = self.lock();
            let open = inner.healths.iter().filter(|health| !health.is_confirmed(until));
            open.cloned().collect::<Vec<WatchHealth>>()
        };
        let unconfirmed: Vec<WatchHealth> = {
            let inner = self.lock();
            let healths = inner.readable_healths().filter(|health| !health.is_confirmed(until));
            healths.cloned().collect()
        };
        for health in &unconfirmed {
            health.doubt();
            health.ask();
        }
        let confirmed = async {
            while !open().is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = tokio::time::timeout(longest, confirmed).await;
        open().first().map_or(Ok(()), |health| Err(health.what))
    }

    /// Waits until everything was listed at least once.
    pub async fn synced(&self) {
        while !self.is_synced() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Everything was listed at least once, but in namespaces that can't be read: Nudge has no right, or their lists fail again and again
    /// while another namespace can be read. Once it was, it stays so: a namespace that is not complete is held on its own until it is.
    pub fn is_synced(&self) -> bool {
        if self.synced.load(Ordering::Relaxed) {
            return true;
        }
        let inner = self.lock();
        let is_listed = !inner.healths.is_empty() && inner.healths.iter().all(|health| health.age().is_some());
        let settled = |space: &Space| space.is_complete() || space.forbidden().is_some();
        // Where nothing can be listed it is not the fault of a namespace.
        let synced = is_listed
            && (inner.spaces.is_empty() || inner.spaces.values().any(settled))
            && inner.spaces.values().all(|space| settled(space) || space.is_hopeless());
        self.synced.store(synced, Ordering::Relaxed);
        synced
    }
}

impl Inner {
    /// The healths that the knowledge of a namespace depends on.
    fn healths_of<'a>(&'a self, space: &'a Space) -> impl Iterator<Item = &'a WatchHealth> {
        self.healths.iter().chain(space.allowed_watches())
    }

    fn readable_healths(&self) -> impl Iterator<Item = &WatchHealth> {
        let readable = self.spaces.values().filter(|space| space.forbidden().is_none());
        self.healths.iter().chain(readable.flat_map(Space::allowed_watches))
    }
}

fn silent<'a>(healths: impl Iterator<Item = &'a WatchHealth>, longest: Duration) -> Option<Silent> {
    let mut ages = healths.map(|health| (health.what, health.age()));
    ages.find(|(_, age)| age.is_none_or(|age| age > longest))
}
