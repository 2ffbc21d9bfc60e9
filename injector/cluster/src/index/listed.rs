//! What lists and refusals of the API server say of whole namespaces.

use std::collections::HashSet;
use std::time::Instant;

use nudge_core::keys::{ConfigKey, ObjectKey, PodKey};

use super::{Index, Kind};
use crate::watch_health::WatchHealth;

/// What one watch is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All enabled namespaces.
    Cluster,
    /// One of them.
    Namespace(String),
}

impl Scope {
    fn holds(&self, namespace: &str) -> bool {
        match self {
            Self::Cluster => true,
            Self::Namespace(own) => own == namespace,
        }
    }
}

/// What was found of an enabled namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Namespaces {
    /// Everything was listed since it was enabled.
    pub complete: usize,
    /// Something was not listed yet.
    pub incomplete: usize,
    /// Nudge has no right to read what it needs.
    pub forbidden: usize,
}

impl Index {
    /// From now on a namespace that is enabled is complete when these were listed.
    pub(crate) fn expect(&self, kinds: &[Kind]) {
        self.lock().expected = kinds.iter().copied().collect();
    }

    /// Adds the health of a watch that all namespaces share.
    pub(crate) fn add_shared_health(&self, kind: Kind, health: &WatchHealth) {
        let mut inner = self.lock();
        // What is not needed makes no replica useless.
        if kind.is_needed() {
            inner.healths.push(health.clone());
        }
        inner.shared.push((kind, health.clone()));
        for space in inner.spaces.values_mut() {
            space.watches.push((kind, health.clone()));
        }
    }

    /// When the namespace was enabled.
    pub(crate) fn enabled_since(&self, namespace: &str) -> Option<Instant> {
        self.lock().spaces.get(namespace).map(|space| space.since)
    }

    /// Adds the health of a watch of the namespace that was enabled then.
    pub(crate) fn add_health_of(&self, namespace: &str, since: Option<Instant>, kind: Kind, health: WatchHealth) {
        let mut inner = self.lock();
        if let Some(space) = inner.spaces.get_mut(namespace).filter(|space| Some(space.since) == since) {
            space.watches.push((kind, health));
        }
    }

    /// A list that began then is complete: removes the objects of the scope that it has not shown.
    pub(crate) fn listed(&self, scope: &Scope, kind: Kind, began: Instant, seen: &HashSet<(String, String)>) {
        let known: Vec<(String, Vec<String>)> = {
            let inner = self.lock();
            // A list that began before its namespace was enabled may have left its objects out.
            let spaces = inner.spaces.iter().filter(|(name, space)| scope.holds(name) && space.since <= began);
            spaces.map(|(name, space)| (name.clone(), space.names(kind))).collect()
        };
        for (namespace, names) in known {
            let was_seen = |name: &str| seen.contains(&(namespace.clone(), name.to_owned()));
            for gone in names.iter().filter(|name| !was_seen(name)) {
                self.remove(kind, &namespace, gone);
            }
            let mut completed = false;
            self.touch(&namespace, |space| {
                if space.since > began {
                    return false;
                }
                space.unkept.retain(kind, was_seen);
                let newly_allowed = kind == Kind::Secrets && !std::mem::replace(&mut space.secrets_allowed, true);
                completed = space.settle(kind);
                if space.reported_forbidden && space.forbidden().is_none() {
                    space.reported_forbidden = false;
                    tracing::info!(namespace, "namespace can be read now");
                }
                completed || newly_allowed
            });
            if completed {
                // Requests wait for pods of a namespace that was not complete.
                self.pod_added.send_replace(());
            }
        }
    }

    /// The API server has refused to show this. Returns whether the log does not say yet that the namespace can't be read.
    pub(crate) fn refused(&self, namespace: &str, kind: Kind, for_sure: bool) -> bool {
        let mut news = false;
        if kind == Kind::Secrets {
            let mut completed = false;
            // Nothing waits for Secrets of a namespace that does not allow them to be read.
            self.touch(namespace, |space| {
                completed = space.settle(kind);
                completed
            });
            if completed {
                self.pod_added.send_replace(());
            }
            if for_sure {
                self.forget_secrets(namespace);
            }
        } else if for_sure && let Some(space) = self.lock().spaces.get_mut(namespace) {
            news = !std::mem::replace(&mut space.reported_forbidden, true);
        }
        news
    }

    /// The API server has refused to show what users have decided, or does not have the kind. Nothing waits for that but versions that need
    /// approval.
    pub(crate) fn refused_approvals(&self, scope: &Scope) {
        let namespaces: Vec<String> = self.lock().spaces.keys().filter(|name| scope.holds(name)).cloned().collect();
        for namespace in namespaces {
            let mut completed = false;
            self.touch(&namespace, |space| {
                completed = space.settle(Kind::Approvals);
                completed
            });
            if completed {
                self.pod_added.send_replace(());
            }
        }
    }

    /// Has the API server asked anew for what it refuses to show.
    pub(crate) fn ask_forbidden(&self, namespace: &str) {
        let inner = self.lock();
        let watches = inner.spaces.get(namespace).into_iter().flat_map(|space| &space.watches);
        watches.filter(|(_, health)| health.is_forbidden()).for_each(|(_, health)| health.ask());
    }

    /// Returns whether the object is kept, or counted among those that are left out.
    pub(crate) fn has(&self, kind: Kind, namespace: &str, name: &str) -> bool {
        self.lock().spaces.get(namespace).is_some_and(|space| space.has(kind, namespace, name))
    }

    /// An object of this kind is there and can't be parsed. It stays as it was known, or is left out: its absence means nothing.
    pub(crate) fn unparsed(&self, kind: Kind, namespace: &str, name: &str, reason: &str) {
        if let Some(space) = self.lock().spaces.get_mut(namespace) {
            tracing::error!(namespace, name, kind = kind.as_str(), reason, "object not parsed; its last state stays");
            if !space.has(kind, namespace, name) {
                space.leave_out(kind, namespace, name, "it can't be parsed");
            }
        }
    }

    /// Removes an object of this kind, by its name: its labels may have changed.
    pub(crate) fn remove(&self, kind: Kind, namespace: &str, name: &str) {
        let key = || ConfigKey::parse(namespace, name).ok();
        match kind {
            Kind::Configs => key().iter().for_each(|key| self.remove_config(key)),
            Kind::Published => key().into_iter().for_each(|key| self.set_published(key, None)),
            Kind::Pods => self.remove_pod(&PodKey::new(namespace, name)),
            Kind::Accounts => self.remove_account(namespace, name),
            Kind::Approvals => self.remove_approval(namespace, name),
            Kind::ConfigMaps | Kind::Secrets => {
                let parts = kind.part().into_iter().map(|part| ObjectKey::new(part, namespace, name));
                parts.for_each(|object| self.remove_part(&object));
            }
        }
    }

    /// How many namespaces are known in which state.
    pub fn namespaces(&self) -> Namespaces {
        let mut counts = Namespaces::default();
        for space in self.lock().spaces.values() {
            if space.forbidden().is_some() {
                counts.forbidden += 1;
            } else if space.is_complete() {
                counts.complete += 1;
            } else {
                counts.incomplete += 1;
            }
        }
        counts
    }

    /// How many objects of each kind are not kept, because their namespaces have too many.
    pub fn left_out(&self) -> [(Kind, usize); 7] {
        let inner = self.lock();
        Kind::ALL.map(|kind| (kind, inner.spaces.values().map(|space| space.unkept.count(kind)).sum()))
    }
}
