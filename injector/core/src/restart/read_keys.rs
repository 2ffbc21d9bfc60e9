//! The keys of ConfigMaps and Secrets that the pods of a template read.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, KeyToPath, PodSpec, VolumeMount};
use nudge_api::PartKind;

use crate::injection::{NamedObject, is_part, variable_objects, volume_objects};

/// The keys of a ConfigMap or a Secret that pods read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadKeys {
    /// All keys, because the pods mount the whole object or take it by `envFrom`.
    All,
    /// These keys, which variables, items of volumes or subPaths name.
    Named(BTreeSet<String>),
}

impl ReadKeys {
    fn named<'a>(keys: impl IntoIterator<Item = &'a str>) -> Self {
        Self::Named(keys.into_iter().map(str::to_owned).collect())
    }

    fn extend(&mut self, others: Self) {
        match (&mut *self, others) {
            (Self::Named(keys), Self::Named(others)) => keys.extend(others),
            _ => *self = Self::All,
        }
    }
}

/// Returns the objects that the pods read, by volumes and variables, with their keys.
pub(super) fn read_keys(spec: &PodSpec) -> BTreeMap<(PartKind, String), ReadKeys> {
    let mut objects: BTreeMap<(PartKind, String), ReadKeys> = BTreeMap::new();
    let mut add = |object: NamedObject<'_>, keys: ReadKeys| match objects.get_mut(&object.id()) {
        Some(before) => before.extend(keys),
        None => _ = objects.insert(object.id(), keys),
    };
    let containers: Vec<&Container> = spec.init_containers.iter().flatten().chain(&spec.containers).collect();
    for volume in spec.volumes.iter().flatten() {
        let mounts: Vec<&VolumeMount> = containers
            .iter()
            .flat_map(|container| container.volume_mounts.iter().flatten())
            .filter(|mount| mount.name == volume.name)
            .collect();
        for object in volume_objects(volume) {
            // A volume that no container mounts counts as if one did.
            if mounts.is_empty() {
                add(object, volume_keys(object.items));
            }
            for mount in &mounts {
                add(object, mounted_keys(mount, object.items));
            }
        }
    }
    for object in containers.into_iter().flat_map(variable_objects) {
        add(object, object.key.map_or(ReadKeys::All, |key| ReadKeys::named([key])));
    }
    objects
}

/// Returns the keys of a volume with these items.
fn volume_keys(items: &[KeyToPath]) -> ReadKeys {
    if items.is_empty() { ReadKeys::All } else { ReadKeys::named(items.iter().map(|item| item.key.as_str())) }
}

/// Returns the keys of a volume with these items that a mount shows. A path that names no file shows all of them.
fn mounted_keys(mount: &VolumeMount, items: &[KeyToPath]) -> ReadKeys {
    let path = mount.sub_path.as_deref().filter(|_| is_part(mount) && mount.sub_path_expr.is_none());
    match (path, volume_keys(items)) {
        // The kubelet's own names begin with two dots: `..data` shows all keys.
        (Some(path), ReadKeys::All) if !path.contains('/') && !path.starts_with("..") => ReadKeys::named([path]),
        (Some(path), volume_keys) => {
            let item = items.iter().find(|item| item.path == path);
            item.map_or(volume_keys, |item| ReadKeys::named([item.key.as_str()]))
        }
        (None, volume_keys) => volume_keys,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(containers: &Value, volumes: &Value) -> BTreeMap<String, ReadKeys> {
        read_objects(containers, volumes, PartKind::ConfigMap)
    }

    fn read_objects(containers: &Value, volumes: &Value, kind: PartKind) -> BTreeMap<String, ReadKeys> {
        let spec = serde_json::from_value(json!({"containers": containers, "volumes": volumes})).unwrap();
        let objects = read_keys(&spec).into_iter().filter(|((of_object, _), _)| *of_object == kind);
        objects.map(|((_, name), keys)| (name, keys)).collect()
    }

    #[test]
    fn keys_of_secrets_are_read_in_the_same_ways() {
        let variable = json!({"name": "A", "valueFrom": {"secretKeyRef": {"name": "shop", "key": "x"}}});
        let mounts = json!([{"name": "v", "mountPath": "/v", "subPath": "y"}, {"name": "p", "mountPath": "/p"}]);
        let from = json!([{"secretRef": {"name": "all"}}]);
        let containers = json!([{"name": "app", "env": [variable], "envFrom": from, "volumeMounts": mounts}]);
        let volumes = json!([{"name": "v", "secret": {"secretName": "shop"}},
            {"name": "p", "projected": {"sources": [{"secret": {"name": "shop", "items": [{"key": "z", "path": "z"}]}}]}}]);
        let secrets = read_objects(&containers, &volumes, PartKind::Secret);
        assert_eq!((&secrets["shop"], &secrets["all"]), (&ReadKeys::named(["x", "y", "z"]), &ReadKeys::All));
        assert!(read(&containers, &volumes).is_empty());
    }

    /// Returns the keys of the ConfigMap shop that a container reads by these mounts of the volume `v`.
    fn mounted(mounts: &[Value], source: &Value) -> ReadKeys {
        let mounts: Vec<Value> = mounts
            .iter()
            .map(|mount| {
                let mut whole = json!({"name": "v", "mountPath": "/v"});
                whole.as_object_mut().unwrap().extend(mount.as_object().unwrap().clone());
                whole
            })
            .collect();
        let volumes = json!([{"name": "v", "configMap": source}, {"name": "other", "emptyDir": {}}]);
        read(&json!([{"name": "app", "volumeMounts": mounts}]), &volumes)["shop"].clone()
    }

    #[test]
    fn variables_name_their_keys_and_env_from_reads_all() {
        let variable = |key: &str| json!({"name": "A", "valueFrom": {"configMapKeyRef": {"name": "shop", "key": key}}});
        let from = json!([{"configMapRef": {"name": "keys"}}]);
        let containers =
            json!([{"name": "a", "env": [variable("x")]}, {"name": "b", "env": [variable("y")], "envFrom": from}]);
        let maps = read(&containers, &json!([]));
        assert_eq!(maps["shop"], ReadKeys::named(["x", "y"]));
        assert_eq!(maps["keys"], ReadKeys::All);
        let both = json!([{"name": "a", "env": [variable("x")], "envFrom": [{"configMapRef": {"name": "shop"}}]}]);
        assert_eq!(read(&both, &json!([]))["shop"], ReadKeys::All);
    }

    #[test]
    fn volumes_read_their_items_and_mounts_their_file() {
        let (all, items) =
            (json!({"name": "shop"}), json!([{"key": "x", "path": "x.conf"}, {"key": "y", "path": "d/y"}]));
        let some = json!({"name": "shop", "items": items});
        assert_eq!(mounted(&[json!({})], &all), ReadKeys::All);
        assert_eq!(mounted(&[], &all), ReadKeys::All);
        assert_eq!(mounted(&[json!({"subPath": "x"}), json!({"subPath": "z"})], &all), ReadKeys::named(["x", "z"]));
        assert_eq!(mounted(&[json!({"subPath": "x"}), json!({})], &all), ReadKeys::All);
        assert_eq!(mounted(&[json!({"subPathExpr": "$(A)"})], &all), ReadKeys::All);
        assert_eq!(mounted(&[json!({"subPath": "./x"})], &all), ReadKeys::All);
        assert_eq!(mounted(&[json!({"subPath": "."})], &all), ReadKeys::All);
        assert_eq!(mounted(&[json!({})], &some), ReadKeys::named(["x", "y"]));
        assert_eq!(mounted(&[json!({"subPath": "d/y"})], &some), ReadKeys::named(["y"]));
        assert_eq!(mounted(&[json!({"subPath": "d"})], &some), ReadKeys::named(["x", "y"]));
    }

    #[test]
    fn sources_of_projected_volumes_are_volumes() {
        let sources = json!([{"configMap": {"name": "shop", "items": [{"key": "x", "path": "x"}]}}, {"configMap": {"name": "keys"}}]);
        let volumes = json!([{"name": "v", "projected": {"sources": sources}}]);
        let maps = read(&json!([{"name": "app", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]), &volumes);
        assert_eq!((&maps["shop"], &maps["keys"]), (&ReadKeys::named(["x"]), &ReadKeys::All));
    }
}
