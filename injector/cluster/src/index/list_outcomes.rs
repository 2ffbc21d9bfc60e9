//! The outcomes of lists: the objects that they complete and remove, and the effect of the API server's refusals on
//! namespaces.

use std::collections::HashSet;
use std::time::Instant;

use nudge_core::keys::{ConfigKey, ObjectKey, PodKey};

use super::{Index, WatchedKind};
use crate::watch_health::WatchHealth;

/// The number of refusals in a row that prove a missing right. A server that has just started may refuse a request that
/// it allows a moment later.
const MIN_LASTING_REFUSALS: u32 = 3;

/// The scope of one watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchScope {
    /// All enabled namespaces.
    Cluster,
    /// One enabled namespace.
    Namespace(String),
}

impl WatchScope {
    /// Returns the namespace, if the scope has one.
    pub(crate) fn namespace(&self) -> Option<&str> {
        match self {
            Self::Cluster => None,
            Self::Namespace(name) => Some(name),
        }
    }

    fn contains(&self, namespace: &str) -> bool {
        self.namespace().is_none_or(|name| name == namespace)
    }
}

/// The numbers of enabled namespaces by their states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceCounts {
    /// The number of namespaces that were listed since they were enabled.
    pub complete: usize,
    /// The number of namespaces with a kind that was not listed yet.
    pub incomplete: usize,
    /// The number of namespaces where Nudge lacks a right to read.
    pub forbidden: usize,
}

impl Index {
    /// Sets the kinds that must be listed before a namespace is complete.
    pub(crate) fn expect(&self, kinds: &[WatchedKind]) {
        self.lock().expected = kinds.iter().copied().collect();
    }

    /// Adds a watch that all namespaces share. Returns its health.
    pub(crate) fn add_shared_health(&self, kind: WatchedKind) -> WatchHealth {
        let health = WatchHealth::shared(kind.as_str());
        let mut inner = self.lock();
        // A kind that is not needed makes no replica useless.
        if kind.is_needed() {
            inner.healths.push(health.clone());
        }
        inner.shared.push((kind, health.clone()));
        for state in inner.namespaces.values_mut() {
            state.watches.push((kind, health.clone()));
        }
        health
    }

    /// Returns when the namespace of the scope was enabled.
    pub(crate) fn enabled_since(&self, scope: &WatchScope) -> Option<Instant> {
        Some(self.lock_namespace(scope.namespace()?)?.enabled_at)
    }

    /// Adds a watch of the namespace, if this was enabled at that time. Returns its health.
    pub(crate) fn add_health_of(&self, namespace: &str, since: Option<Instant>, kind: WatchedKind) -> WatchHealth {
        let health = WatchHealth::new(kind.as_str());
        if let Some(mut state) = self.lock_namespace(namespace).filter(|state| Some(state.enabled_at) == since) {
            state.watches.push((kind, health.clone()));
        }
        health
    }

    /// Notes that the list that began then is complete. Removes the objects of the scope that it has not shown.
    pub(crate) fn complete_list(
        &self,
        scope: &WatchScope,
        kind: WatchedKind,
        began: Instant,
        listed: &HashSet<(String, String)>,
    ) {
        let indexed_names: Vec<(String, Vec<String>)> = {
            let inner = self.lock();
            // A list that began before its namespace was enabled may have left its objects out.
            let namespaces =
                inner.namespaces.iter().filter(|(name, state)| scope.contains(name) && state.enabled_at <= began);
            namespaces.map(|(name, state)| (name.clone(), state.names(kind))).collect()
        };
        for (namespace, names) in indexed_names {
            let was_listed = |name: &str| listed.contains(&(namespace.clone(), name.to_owned()));
            for name in names.iter().filter(|name| !was_listed(name)) {
                self.remove(kind, &namespace, name);
            }
            self.touch(&namespace, |state| {
                if state.enabled_at > began {
                    return false;
                }
                state.left_out.retain(kind, was_listed);
                let newly_allowed =
                    kind == WatchedKind::Secrets && !std::mem::replace(&mut state.secrets_allowed, true);
                state.settle(kind);
                if state.reported_forbidden && state.forbidden_kind().is_none() {
                    state.reported_forbidden = false;
                    tracing::info!(namespace, "namespace can be read now");
                }
                newly_allowed
            });
        }
    }

    /// Notes refusals of the API server in a row to show this. Returns whether to log that the namespace can't be read.
    pub(crate) fn note_refusals(&self, namespace: &str, kind: WatchedKind, refusals: u32) -> bool {
        let is_lasting = refusals >= MIN_LASTING_REFUSALS;
        if kind == WatchedKind::Secrets {
            // Nothing waits for Secrets of a namespace that does not allow them to be read.
            self.settle(namespace, kind);
            if is_lasting {
                self.forget_secrets(namespace);
            }
            return false;
        }
        let state = self.lock_namespace(namespace).filter(|_| is_lasting);
        state.is_some_and(|mut state| !std::mem::replace(&mut state.reported_forbidden, true))
    }

    fn settle(&self, namespace: &str, kind: WatchedKind) {
        self.touch(namespace, |state| {
            state.settle(kind);
            false
        });
    }

    /// Notes that the API server refuses to show approvals, or does not have the kind. Only versions that need approval
    /// wait for them.
    pub(crate) fn note_refused_approvals(&self, scope: &WatchScope) {
        let namespaces: Vec<String> =
            self.lock().namespaces.keys().filter(|name| scope.contains(name)).cloned().collect();
        for namespace in namespaces {
            self.settle(&namespace, WatchedKind::Approvals);
        }
    }

    /// Makes the watches of the namespace retry the kinds that the API server refuses to show.
    pub(crate) fn retry_forbidden(&self, namespace: &str) {
        let Some(state) = self.lock_namespace(namespace) else { return };
        state
            .watches
            .iter()
            .filter(|(_, health)| health.is_forbidden())
            .for_each(|(_, health)| health.request_answer());
    }

    /// Returns whether the object is kept, or counted among those that are left out.
    pub(crate) fn has(&self, kind: WatchedKind, namespace: &str, name: &str) -> bool {
        self.lock_namespace(namespace).is_some_and(|state| state.has(kind, namespace, name))
    }

    /// Notes that an object exists and can't be parsed. It stays as it was known, or is left out.
    pub(crate) fn note_unparsed(&self, kind: WatchedKind, namespace: &str, name: &str, reason: &str) {
        if let Some(mut state) = self.lock_namespace(namespace) {
            tracing::error!(namespace, name, kind = kind.as_str(), reason, "object not parsed; its last state stays");
            if !state.has(kind, namespace, name) {
                state.leave_out(kind, namespace, name, "it can't be parsed");
            }
        }
    }

    /// Removes an object of this kind by its name, since its labels may have changed.
    pub(crate) fn remove(&self, kind: WatchedKind, namespace: &str, name: &str) {
        let key = || ConfigKey::parse(namespace, name).ok();
        match kind {
            WatchedKind::Configs => key().iter().for_each(|key| self.remove_config(key)),
            WatchedKind::Published => key().into_iter().for_each(|key| self.set_published_meta(key, None)),
            WatchedKind::Pods => self.remove_pod(&PodKey::new(namespace, name)),
            WatchedKind::Accounts => self.remove_account(namespace, name),
            WatchedKind::Approvals => self.remove_approval(namespace, name),
            WatchedKind::ConfigMaps | WatchedKind::Secrets => {
                let parts = kind.part().into_iter().map(|part| ObjectKey::new(part, namespace, name));
                parts.for_each(|object| self.remove_part(&object));
            }
        }
    }

    /// Counts the enabled namespaces by their states.
    pub fn count_namespaces(&self) -> NamespaceCounts {
        let mut counts = NamespaceCounts::default();
        for state in self.lock().namespaces.values() {
            if state.forbidden_kind().is_some() {
                counts.forbidden += 1;
            } else if state.is_complete() {
                counts.complete += 1;
            } else {
                counts.incomplete += 1;
            }
        }
        counts
    }

    /// Counts the objects of each kind that are left out, because their namespaces have too many.
    pub fn count_left_out(&self) -> [(WatchedKind, usize); 7] {
        let inner = self.lock();
        WatchedKind::ALL.map(|kind| (kind, inner.namespaces.values().map(|state| state.left_out.count(kind)).sum()))
    }
}
