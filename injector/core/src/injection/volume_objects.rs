//! The ConfigMaps and Secrets that a volume has, also those that it projects.

use k8s_openapi::api::core::v1::Volume;
use nudge_api::PartKind;

/// An object that a volume has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeObject<'a> {
    /// Whether the object is a ConfigMap or a Secret.
    pub kind: PartKind,
    /// The object's name.
    pub name: &'a str,
    /// Whether the object may be missing; `None` counts as `false`.
    pub optional: Option<bool>,
}

/// Returns the objects of a volume, in their order.
pub fn objects(volume: &Volume) -> impl Iterator<Item = VolumeObject<'_>> {
    let config_map = |name, optional| VolumeObject { kind: PartKind::ConfigMap, name, optional };
    let secret = |name, optional| VolumeObject { kind: PartKind::Secret, name, optional };
    let single_objects = volume.config_map.iter().map(move |map| config_map(map.name.as_str(), map.optional));
    let alone_secret =
        volume.secret.iter().filter_map(move |source| Some(secret(source.secret_name.as_deref()?, source.optional)));
    let projections = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    let projected = projections.filter_map(move |source| match (&source.config_map, &source.secret) {
        (Some(map), _) => Some(config_map(map.name.as_str(), map.optional)),
        (None, Some(source)) => Some(secret(source.name.as_str(), source.optional)),
        (None, None) => None,
    });
    single_objects.chain(alone_secret).chain(projected)
}
