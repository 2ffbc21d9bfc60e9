//! The objects with the labels of versions. Each belongs to one config, which its labels name.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use nudge_api::PartKind;
use nudge_core::keys::{ConfigKey, ObjectKey, PartMeta};

/// The objects of all configs of a namespace.
#[derive(Default)]
pub(super) struct Parts {
    by_config: HashMap<ConfigKey, BTreeMap<ObjectKey, Arc<PartMeta>>>,
    /// The config that the labels of each object name.
    configs: HashMap<ObjectKey, ConfigKey>,
    /// The number of Secrets.
    secrets: usize,
}

/// The effect of [`Parts::put`].
pub(super) enum PutChange {
    Nothing,
    /// The object is new or has changed.
    Changed,
    /// The labels of the object named this other config before.
    MovedFrom(ConfigKey),
}

impl Parts {
    /// Returns the configs that the objects name, also those that do not exist.
    pub(super) fn configs(&self) -> impl Iterator<Item = &ConfigKey> {
        self.by_config.keys()
    }

    /// Returns the objects of a config.
    pub(super) fn of_config(&self, config: &ConfigKey) -> Vec<Arc<PartMeta>> {
        self.by_config.get(config).into_iter().flat_map(|parts| parts.values().cloned()).collect()
    }

    /// Adds an object of the config, or replaces it.
    pub(super) fn put(&mut self, config: ConfigKey, part: PartMeta) -> PutChange {
        let object = object_key(&config, &part);
        let other = self.configs.get(&object).filter(|present| **present != config).cloned();
        if other.is_some() {
            self.remove(&object);
        }
        let parts = self.by_config.entry(config.clone()).or_default();
        if parts.get(&object).is_some_and(|present| **present == part) {
            return PutChange::Nothing;
        }
        self.secrets += usize::from(part.kind == PartKind::Secret && !self.configs.contains_key(&object));
        parts.insert(object.clone(), Arc::new(part));
        self.configs.insert(object, config);
        other.map_or(PutChange::Changed, PutChange::MovedFrom)
    }

    /// Removes an object; returns the config that it belonged to.
    pub(super) fn remove(&mut self, object: &ObjectKey) -> Option<ConfigKey> {
        let config = self.configs.remove(object)?;
        self.secrets -= usize::from(object.kind == PartKind::Secret);
        if let Some(parts) = self.by_config.get_mut(&config) {
            parts.remove(object);
            if parts.is_empty() {
                self.by_config.remove(&config);
            }
        }
        Some(config)
    }

    /// Returns the number of objects of a kind.
    pub(super) fn count(&self, kind: PartKind) -> usize {
        match kind {
            PartKind::ConfigMap => self.configs.len() - self.secrets,
            PartKind::Secret => self.secrets,
        }
    }

    pub(super) fn contains(&self, object: &ObjectKey) -> bool {
        self.configs.contains_key(object)
    }

    pub(super) fn of_kind(&self, kind: PartKind) -> impl Iterator<Item = &ObjectKey> {
        self.configs.keys().filter(move |object| object.kind == kind)
    }

    /// Removes all objects of a kind.
    pub(super) fn clear(&mut self, kind: PartKind) {
        for object in self.of_kind(kind).cloned().collect::<Vec<_>>() {
            self.remove(&object);
        }
    }
}

/// Returns the key of a part, which is in the namespace of its config.
pub(super) fn object_key(config: &ConfigKey, part: &PartMeta) -> ObjectKey {
    ObjectKey::new(part.kind, &*config.namespace, &*part.name)
}
