//! The ConfigMaps and Secrets that volumes have, also those that they project, and that variables come from.

use k8s_openapi::api::core::v1::{Container, KeyToPath, PodSpec, Volume, VolumeMount};
use nudge_api::PartKind;

/// An object that a volume or a variable names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NamedObject<'a> {
    /// Whether the object is a ConfigMap or a Secret.
    pub kind: PartKind,
    /// The object's name.
    pub name: &'a str,
    /// Whether the object may be missing; `None` counts as `false`.
    pub optional: Option<bool>,
    /// The key whose value a single variable has.
    pub key: Option<&'a str>,
    /// The keys that a volume shows; all if there are none.
    pub items: &'a [KeyToPath],
    /// The mode of a volume's files.
    pub mode: Option<i32>,
}

impl<'a> NamedObject<'a> {
    fn config_map(name: &'a str, optional: Option<bool>) -> Self {
        Self { kind: PartKind::ConfigMap, name, optional, key: None, items: &[], mode: None }
    }

    fn secret(name: &'a str, optional: Option<bool>) -> Self {
        Self { kind: PartKind::Secret, ..Self::config_map(name, optional) }
    }

    fn with_key(self, key: &'a str) -> Self {
        Self { key: Some(key), ..self }
    }

    fn with_files(self, items: Option<&'a Vec<KeyToPath>>, mode: Option<i32>) -> Self {
        Self { items: items.map(Vec::as_slice).unwrap_or_default(), mode, ..self }
    }

    /// Returns the kind and the name.
    pub fn id(self) -> (PartKind, String) {
        (self.kind, self.name.to_owned())
    }
}

/// Returns the objects of a volume, in their order.
pub fn volume_objects(volume: &Volume) -> impl Iterator<Item = NamedObject<'_>> {
    let map = volume
        .config_map
        .iter()
        .map(|map| NamedObject::config_map(&map.name, map.optional).with_files(map.items.as_ref(), map.default_mode));
    let secret = volume.secret.iter().filter_map(|source| {
        let name = source.secret_name.as_deref()?;
        Some(NamedObject::secret(name, source.optional).with_files(source.items.as_ref(), source.default_mode))
    });
    let projected = volume.projected.iter().flat_map(|projected| {
        let mode = projected.default_mode;
        projected.sources.iter().flatten().flat_map(move |source| {
            let map = source
                .config_map
                .iter()
                .map(move |map| NamedObject::config_map(&map.name, map.optional).with_files(map.items.as_ref(), mode));
            map.chain(source.secret.iter().map(move |secret| {
                NamedObject::secret(&secret.name, secret.optional).with_files(secret.items.as_ref(), mode)
            }))
        })
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
        let map = from.config_map_key_ref.iter();
        let map = map.map(|key| NamedObject::config_map(&key.name, key.optional).with_key(&key.key));
        let secret = from.secret_key_ref.iter();
        map.chain(secret.map(|key| NamedObject::secret(&key.name, key.optional).with_key(&key.key)))
    });
    whole.chain(single)
}

/// Returns the objects that a container of the pod reads itself: in variables, and in volumes that it mounts.
pub fn container_objects<'a>(spec: &'a PodSpec, container: &'a Container) -> impl Iterator<Item = NamedObject<'a>> {
    let mounts = container.volume_mounts.iter().flatten();
    let volumes = mounts.filter_map(|mount| mounted_volume(spec, mount));
    variable_objects(container).chain(volumes.flat_map(volume_objects))
}

/// Returns the volume that is mounted.
pub(super) fn mounted_volume<'a>(spec: &'a PodSpec, mount: &VolumeMount) -> Option<&'a Volume> {
    spec.volumes.iter().flatten().find(|volume| volume.name == mount.name)
}
