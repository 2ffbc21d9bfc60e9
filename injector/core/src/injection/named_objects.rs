//! The ConfigMaps and Secrets that volumes have, also those that they project, and that variables come from.

use k8s_openapi::api::core::v1::{Container, Volume};
use nudge_api::PartKind;

/// An object that a volume or a variable names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedObject<'a> {
    /// Whether the object is a ConfigMap or a Secret.
    pub kind: PartKind,
    /// The object's name.
    pub name: &'a str,
    /// Whether the object may be missing; `None` counts as `false`.
    pub optional: Option<bool>,
}

impl<'a> NamedObject<'a> {
    fn config_map(name: &'a str, optional: Option<bool>) -> Self {
        Self { kind: PartKind::ConfigMap, name, optional }
    }

    fn secret(name: &'a str, optional: Option<bool>) -> Self {
        Self { kind: PartKind::Secret, name, optional }
    }

    /// Returns the kind and the name.
    pub fn key(self) -> (PartKind, String) {
        (self.kind, self.name.to_owned())
    }
}

/// Returns the objects of a volume, in their order.
pub fn volume_objects(volume: &Volume) -> impl Iterator<Item = NamedObject<'_>> {
    let map = volume.config_map.iter().map(|map| NamedObject::config_map(&map.name, map.optional));
    let secret = volume.secret.iter().filter_map(|source| {
        let name = source.secret_name.as_deref()?;
        Some(NamedObject::secret(name, source.optional))
    });
    let projections = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    let projected = projections.flat_map(|source| {
        let map = source.config_map.iter().map(|map| NamedObject::config_map(&map.name, map.optional));
        map.chain(source.secret.iter().map(|secret| NamedObject::secret(&secret.name, secret.optional)))
    });
    map.chain(secret).chain(projected)
}

/// Returns the objects that a container's variables come from: whole ones, then those of single variables.
pub fn variable_objects(container: &Container) -> impl Iterator<Item = NamedObject<'_>> {
    let whole = container.env_from.iter().flatten().flat_map(|from| {
        let map = from.config_map_ref.iter().map(|map| NamedObject::config_map(&map.name, map.optional));
        map.chain(from.secret_ref.iter().map(|secret| NamedObject::secret(&secret.name, secret.optional)))
    });
    let single = container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()).flat_map(|from| {
        let map = from.config_map_key_ref.iter().map(|key| NamedObject::config_map(&key.name, key.optional));
        map.chain(from.secret_key_ref.iter().map(|key| NamedObject::secret(&key.name, key.optional)))
    });
    whole.chain(single)
}
