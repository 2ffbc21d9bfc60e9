//! The objects with the labels of versions: each belongs to the one config that its labels name now.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use nudge_api::PartKind;
use nudge_core::keys::{ConfigKey, PartMeta};

/// See the module's text.
#[derive(Default)]
pub(super) struct Parts {
    by_config: HashMap<ConfigKey, BTreeMap<(PartKind, String), Arc<PartMeta>>>,
    /// The config that each object's labels name, by kind, namespace and name of the object.
    owners: HashMap<(PartKind, ConfigKey), ConfigKey>,
}

/// What became of a part that was taken in.
pub(super) enum Placed {
    Unchanged,
    New,
    /// Its labels named another config before.
    Moved(ConfigKey),
}

impl Parts {
    /// The objects of a config.
    pub(super) fn of(&self, key: &ConfigKey) -> Vec<Arc<PartMeta>> {
        self.by_config.get(key).into_iter().flat_map(|parts| parts.values().cloned()).collect()
    }

    /// Takes in an object.
    pub(super) fn put(&mut self, key: ConfigKey, part: PartMeta) -> Placed {
        let object = (part.kind, ConfigKey::new(key.namespace.clone(), part.name.clone()));
        let from = self.owners.get(&object).filter(|owner| **owner != key).cloned();
        if from.is_some() {
            self.remove(&object);
        }
        let parts = self.by_config.entry(key.clone()).or_default();
        let id = (part.kind, part.name.clone());
        if parts.get(&id).is_some_and(|known| **known == part) {
            return Placed::Unchanged;
        }
        parts.insert(id, Arc::new(part));
        self.owners.insert(object, key);
        from.map_or(Placed::New, Placed::Moved)
    }

    /// Forgets an object; returns the config that it belonged to.
    pub(super) fn remove(&mut self, object: &(PartKind, ConfigKey)) -> Option<ConfigKey> {
        let key = self.owners.remove(object)?;
        if let Some(parts) = self.by_config.get_mut(&key) {
            parts.remove(&(object.0, object.1.name.clone()));
            if parts.is_empty() {
                self.by_config.remove(&key);
            }
        }
        Some(key)
    }

    /// The objects of a kind that are not among `keep`.
    pub(super) fn others(&self, kind: PartKind, keep: &BTreeSet<ConfigKey>) -> Vec<ConfigKey> {
        let of_kind = self.owners.keys().filter(|(of, object)| *of == kind && !keep.contains(object));
        of_kind.map(|(_, object)| object.clone()).collect()
    }

    /// Forgets all objects of a kind in a namespace.
    pub(super) fn clear(&mut self, kind: PartKind, namespace: &str) {
        let scoped = self.owners.keys().filter(|(of, object)| *of == kind && object.namespace == namespace);
        for object in scoped.cloned().collect::<Vec<_>>() {
            self.remove(&object);
        }
    }
}
