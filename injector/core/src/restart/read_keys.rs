//! The keys of ConfigMaps and Secrets that the pods of a template read.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, EnvFromSource, EnvVarSource, KeyToPath, PodSpec, Volume, VolumeMount};
use nudge_api::PartKind;

use crate::injection::is_part;

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

/// Returns the objects of this kind that the pods read, by volumes and variables, with their keys.
pub(super) fn read_keys(spec: &PodSpec, kind: PartKind) -> BTreeMap<String, ReadKeys> {
    let mut objects: BTreeMap<String, ReadKeys> = BTreeMap::new();
    let mut add = |name: &str, keys: ReadKeys| match objects.get_mut(name) {
        Some(before) => before.extend(keys),
        None => _ = objects.insert(name.to_owned(), keys),
    };
    let containers: Vec<&Container> = spec.init_containers.iter().flatten().chain(&spec.containers).collect();
    for volume in spec.volumes.iter().flatten() {
        let mounts: Vec<&VolumeMount> = containers
            .iter()
            .flat_map(|container| container.volume_mounts.iter().flatten())
            .filter(|mount| mount.name == volume.name)
            .collect();
        for (name, items) in volume_sources(volume, kind) {
            // A volume that no container mounts counts as if one did.
            if mounts.is_empty() {
                add(name, volume_keys(items));
            }
            for mount in &mounts {
                add(name, mounted_keys(mount, items));
            }
        }
    }
    for container in containers {
        for name in container.env_from.iter().flatten().filter_map(|source| whole_source(source, kind)) {
            add(name, ReadKeys::All);
        }
        let values = container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref());
        for (name, key) in values.filter_map(|value| key_source(value, kind)) {
            add(name, ReadKeys::named([key]));
        }
    }
    objects
}

/// Returns the objects of this kind that a volume has, each with its items.
fn volume_sources(volume: &Volume, kind: PartKind) -> Vec<(&str, Option<&[KeyToPath]>)> {
    let projected = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    match kind {
        PartKind::ConfigMap => {
            let own = volume.config_map.iter().map(|source| (&*source.name, source.items.as_deref()));
            let projected = projected.filter_map(|source| source.config_map.as_ref());
            own.chain(projected.map(|source| (&*source.name, source.items.as_deref()))).collect()
        }
        PartKind::Secret => {
            let own = volume.secret.iter();
            let own = own.filter_map(|source| Some((source.secret_name.as_deref()?, source.items.as_deref())));
            let projected = projected.filter_map(|source| source.secret.as_ref());
            own.chain(projected.map(|source| (&*source.name, source.items.as_deref()))).collect()
        }
    }
}

/// Returns the object of this kind whose keys are all variables.
fn whole_source(source: &EnvFromSource, kind: PartKind) -> Option<&str> {
    match kind {
        PartKind::ConfigMap => source.config_map_ref.as_ref().map(|map| map.name.as_str()),
        PartKind::Secret => source.secret_ref.as_ref().map(|secret| secret.name.as_str()),
    }
}

/// Returns the object of this kind and the key whose value a variable has.
fn key_source(source: &EnvVarSource, kind: PartKind) -> Option<(&str, &str)> {
    match kind {
        PartKind::ConfigMap => source.config_map_key_ref.as_ref().map(|map| (&*map.name, &*map.key)),
        PartKind::Secret => source.secret_key_ref.as_ref().map(|secret| (&*secret.name, &*secret.key)),
    }
}

/// Returns the keys of a volume with these items.
fn volume_keys(items: Option<&[KeyToPath]>) -> ReadKeys {
    let named = |items: &[KeyToPath]| ReadKeys::named(items.iter().map(|item| item.key.as_str()));
    items.filter(|items| !items.is_empty()).map_or(ReadKeys::All, named)
}

/// Returns the keys of a volume with these items that a mount shows. A path that names no file shows all of them.
fn mounted_keys(mount: &VolumeMount, items: Option<&[KeyToPath]>) -> ReadKeys {
    let path = mount.sub_path.as_deref().filter(|_| is_part(mount) && mount.sub_path_expr.is_none());
    match (path, volume_keys(items)) {
        // The kubelet's own names begin with two dots: `..data` shows all keys.
        (Some(path), ReadKeys::All) if !path.contains('/') && !path.starts_with("..") => ReadKeys::named([path]),
        (Some(path), volume_keys) => {
            let item = items.into_iter().flatten().find(|item| item.path == path);
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
        read_keys(&serde_json::from_value(json!({"containers": containers, "volumes": volumes})).unwrap(), kind)
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
