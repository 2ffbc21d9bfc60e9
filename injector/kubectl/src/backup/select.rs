//! The selection of an export: configs, and their versions as they were sealed. Everything else is left out and named
//! with the reason, so that objects that one tenant has broken do not prevent the export of other tenants' objects.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::DynamicObject;
use nudge_api::{PartKind, VersionedConfig, VersionedConfigStatus};
use nudge_protocol::labels;
use serde_json::Value;
use zeroize::Zeroizing;

use super::document::{DocumentKind, MANAGED_BY, Place, document, label};
use super::part::{is_published, parts, seals};
use super::status::exported_status;
use super::stream::encode;

/// The objects of the cluster that an export selects from.
#[derive(Default)]
pub(crate) struct Cluster {
    /// Policies, configs and sources.
    pub(crate) objects: Vec<(DocumentKind, DynamicObject)>,
    /// ConfigMaps that are labelled as parts, or have the name of a config, as documents.
    pub(crate) maps: BTreeMap<Place, Value>,
    /// The labels of Secrets that are labelled as parts, as documents without data.
    pub(crate) secrets: BTreeMap<Place, Value>,
    /// The managers of `spec.version`, for configs that have a source.
    pub(crate) managers: BTreeMap<Place, String>,
}

/// The content of an export.
#[derive(Default)]
pub(crate) struct Selected {
    /// The text of each object. Configs come before their versions, and sources last, so that two exports can be
    /// compared.
    pub(crate) documents: BTreeMap<(String, DocumentKind, String), Zeroizing<String>>,
    pub(crate) configs: BTreeMap<Place, VersionedConfig>,
    /// The objects that could not be exported, each with the reason.
    pub(crate) missing: BTreeSet<String>,
}

impl Selected {
    /// Adds the document. Returns whether it can be written.
    fn add(&mut self, place: &Place, document: &Value) -> bool {
        match encode(document) {
            Ok(text) => {
                let key = (place.namespace.clone(), place.kind, place.name.clone());
                self.documents.insert(key, text);
                true
            }
            Err(cause) => {
                self.missing.insert(format!("{place}: {cause}"));
                false
            }
        }
    }
}

/// Selects the content of an export.
pub(crate) fn select(cluster: Cluster) -> Selected {
    let Cluster { objects, maps, secrets, managers } = cluster;
    let (mut selected, mut unusable, mut named) = (Selected::default(), BTreeSet::new(), BTreeSet::new());
    for (kind, object) in objects {
        let object_place = place(kind, &object);
        if kind != DocumentKind::Config {
            selected.add(&object_place, &document(kind, object));
            continue;
        }
        match config(&object_place, object, managers.get(&object_place)) {
            Ok((exported, config)) if selected.add(&object_place, &exported) => {
                selected.configs.insert(object_place, config);
            }
            Ok(_) => drop(unusable.insert(object_place)),
            Err(cause) => {
                selected.missing.insert(format!("{object_place}: {cause}"));
                unusable.insert(object_place);
            }
        }
    }
    let configs = std::mem::take(&mut selected.configs);
    for (place, config) in &configs {
        for sealed in parts(place, config) {
            let (object, title) = (sealed.place(), sealed.title());
            let stored = maps.get(&object).or_else(|| secrets.get(&object));
            if stored.is_some_and(|stored| sealed.is_labelled(stored)) {
                named.insert(object.clone());
            }
            if sealed.part.kind == PartKind::Secret {
                continue;
            }
            // The object stays in its map, because another config may have it.
            match stored {
                None => drop(selected.missing.insert(format!("{object}: it is a part of {title}, and does not exist"))),
                Some(map) => match sealed.fault(map, None) {
                    Some(fault) => drop(selected.missing.insert(format!("{object}: it {fault} of {title}"))),
                    None => drop(selected.add(&object, map)),
                },
            }
        }
        if is_published(config) {
            let published = Place::new(DocumentKind::ConfigMap, &place.namespace, &place.name);
            if let Some(map) = maps.get(&published) {
                selected.add(&published, map);
                named.insert(published);
            }
        }
    }
    for (place, object) in maps.iter().chain(&secrets).filter(|(place, _)| !named.contains(*place)) {
        let (Some(name), version) = (label(object, labels::CONFIG), label(object, labels::VERSION)) else { continue };
        let config = Place::new(DocumentKind::Config, &place.namespace, name);
        let version = version.unwrap_or_default();
        let entry = match configs.get(&config) {
            // The config is named already.
            None if unusable.contains(&config) => continue,
            None => format!("{place}: there is no config {name} in its namespace"),
            Some(config) if is_sealed(config, version) => {
                format!("{place}: it is not one of the objects that version {version} of config {name} was sealed with")
            }
            Some(_) => {
                let namespace = &place.namespace;
                let hint = format!("it is not sealed; see kubectl nudge status {name} -n {namespace}");
                format!("version {version:?} of config {namespace}/{name}: {hint}")
            }
        };
        selected.missing.insert(entry);
    }
    selected.configs = configs;
    selected
}

fn is_sealed(config: &VersionedConfig, version: &str) -> bool {
    config.status.as_ref().is_some_and(|status| status.version(version).is_some())
}

/// Returns the config as a document and as read back from it, or the reason why it can't be in an export.
fn config(place: &Place, object: DynamicObject, manager: Option<&String>) -> Result<(Value, VersionedConfig), String> {
    let status = object.data["status"].clone();
    let mut exported = document(DocumentKind::Config, object);
    if !status.is_null() {
        let unreadable = |error: serde_json::Error| format!("its status can't be read: {error}");
        let status = exported_status(serde_json::from_value::<VersionedConfigStatus>(status).map_err(unreadable)?);
        exported["status"] = serde_json::to_value(status).map_err(unreadable)?;
    }
    if let Some(manager) = manager {
        exported[MANAGED_BY] = manager.as_str().into();
    }
    let config: VersionedConfig =
        serde_json::from_value(exported.clone()).map_err(|error| format!("it can't be read: {error}"))?;
    seals(place, &config, None)?;
    Ok((exported, config))
}

pub(crate) fn place(kind: DocumentKind, object: &DynamicObject) -> Place {
    let meta = &object.metadata;
    Place::new(kind, meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use nudge_core::versions::part_digest;
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::document::{API, FORMAT, HEADER};
    use super::super::export::ParsedExport;
    use super::super::stream::Writer;
    use super::*;

    /// Returns a ConfigMap as a part, with this content.
    fn map(namespace: &str, config: &str, version: &str, value: &str) -> (Place, Value) {
        let name = format!("{config}-{version}");
        let labels = json!({"nudge.dev/config": config, "nudge.dev/version": version});
        let metadata = json!({"name": name, "namespace": namespace, "labels": labels});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": true, "data": {"a": value}});
        (Place::new(DocumentKind::ConfigMap, namespace, &name), map)
    }

    /// Returns a config with these versions, each of one ConfigMap with this content.
    fn config(namespace: &str, name: &str, versions: &[(&str, &str)]) -> (DocumentKind, DynamicObject) {
        let digest = |value: &str| part_digest(&BTreeMap::from([("a".to_owned(), value.as_bytes())]), None);
        let sealed = |(version, value): &(&str, &str)| {
            json!({
                "version": version, "state": "Available", "keys": 1, "bytes": 1,
                "parts": [{"kind": "ConfigMap", "name": format!("{name}-{version}"), "uid": "u", "digest": digest(value)}],
            })
        };
        let versions: Vec<Value> = versions.iter().map(sealed).collect();
        let object = json!({
            "apiVersion": API, "kind": "VersionedConfig", "metadata": {"name": name, "namespace": namespace, "generation": 1},
            "spec": {}, "status": {"versions": versions},
        });
        (DocumentKind::Config, serde_json::from_value(object).unwrap())
    }

    /// Returns the titles of the selected objects, as an import reads them, and the titles of missing objects.
    fn exported(cluster: Cluster) -> (Vec<String>, Vec<String>) {
        let Selected { documents, missing, .. } = select(cluster);
        let head = json!({
            "apiVersion": API, "kind": HEADER, "format": FORMAT, "exportedAt": "", "program": "", "namespaces": [], "secrets": [],
            "encrypted": false, "contentKey": false, "leftOut": [], "missing": [], "missingCount": 0,
        });
        let mut file = Writer::default();
        file.add("the head", &head).unwrap();
        for text in documents.values() {
            file.push("it", text).unwrap();
        }
        let export = ParsedExport::parse(&file.text()).map_err(|failure| failure.message).unwrap();
        (export.objects.keys().map(ToString::to_string).collect(), missing.into_iter().collect())
    }

    #[test]
    fn what_one_tenant_has_broken_is_left_out_and_named_and_the_rest_is_there() {
        let mut odd = config("b", "odd", &[]);
        odd.1.data["status"]["versions"] = "none".into();
        let mut id = config("b", "id", &[]);
        id.1.data["status"]["internal"] = json!({"identity": "x"});
        let gone = config("b", "gone", &[("1", "1")]);
        let broken = config("b", "shop", &[("1", "1"), ("2", "2")]);
        let maps = [
            map("a", "shop", "1", "1"),
            map("b", "shop", "1", "changed"),
            map("b", "shop", "2", "2"),
            map("b", "odd", "1", "1"),
        ];
        let objects = vec![config("a", "shop", &[("1", "1")]), odd, id, gone, broken];
        let (selected, missing) = exported(Cluster { objects, maps: maps.into(), ..Cluster::default() });
        let configs = ["VersionedConfig a/shop", "VersionedConfig b/gone", "VersionedConfig b/shop"];
        assert_eq!(selected, [&configs[..], &["ConfigMap a/shop-1", "ConfigMap b/shop-2"]].concat());
        let expected = [
            "ConfigMap b/gone-1: it is a part of version 1 of config b/gone, and does not exist",
            "ConfigMap b/shop-1: it does not have the content that was sealed as part of version 1 of config b/shop",
            "VersionedConfig b/id: status.internal.identity is not 32 hex digits",
            "VersionedConfig b/odd: its status can't be read: ",
        ];
        assert_eq!(missing.len(), expected.len(), "{missing:?}");
        assert!(missing.iter().zip(expected).all(|(entry, start)| entry.starts_with(start)), "{missing:?}");
    }

    #[test]
    fn a_version_that_names_the_object_of_another_config_costs_that_one_nothing() {
        let naming = |name: &str| {
            let mut odd = config("a", name, &[("1", "1")]);
            odd.1.data["status"]["versions"][0]["parts"][0]["name"] = "shop-1".into();
            odd
        };
        let objects = vec![naming("odd"), config("a", "shop", &[("1", "1")]), naming("zoo")];
        let maps = [map("a", "shop", "1", "1")].into();
        let (selected, missing) = exported(Cluster { objects, maps, ..Cluster::default() });
        let configs = ["VersionedConfig a/odd", "VersionedConfig a/shop", "VersionedConfig a/zoo"];
        assert_eq!(selected, [&configs[..], &["ConfigMap a/shop-1"]].concat());
        let fault =
            |config: &str| format!("ConfigMap a/shop-1: it does not have the labels of version 1 of config {config}");
        assert_eq!(missing, ["a/odd", "a/zoo"].map(fault));
    }

    #[test]
    fn a_version_that_is_not_sealed_is_named_once_with_its_secret_or_without() {
        let labels = json!({"metadata": {"labels": {"nudge.dev/config": "shop", "nudge.dev/version": "2"}}});
        let secret = |name: &str| (Place::new(DocumentKind::Secret, "a", name), labels.clone());
        let lone = map("a", "nobody", "1", "1");
        let cluster = |maps: &[(Place, Value)], secrets: &[(Place, Value)]| Cluster {
            objects: vec![config("a", "shop", &[("1", "1")])],
            maps: maps.iter().cloned().chain([map("a", "shop", "1", "1")]).collect(),
            secrets: secrets.iter().cloned().collect(),
            ..Cluster::default()
        };
        let unsealed = "version \"2\" of config a/shop: it is not sealed; see kubectl nudge status shop -n a";
        for (maps, secrets) in [
            (vec![map("a", "shop", "2", "2")], vec![secret("shop-2-2")]),
            (vec![], vec![secret("shop-2-1"), secret("shop-2-2")]),
            (vec![map("a", "shop", "2", "2")], vec![]),
        ] {
            let (selected, missing) = exported(cluster(&maps, &secrets));
            assert_eq!(selected, ["VersionedConfig a/shop", "ConfigMap a/shop-1"]);
            assert_eq!(missing, [unsealed]);
        }
        let missing = exported(cluster(&[lone], &[])).1;
        assert_eq!(missing, ["ConfigMap a/nobody-1: there is no config nobody in its namespace"]);
        assert_eq!(exported(cluster(&[], &[])).1, Vec::<String>::new());
    }

    proptest! {
        #[test]
        fn whatever_is_there_what_is_selected_can_be_imported(
            maps in prop::collection::vec(("[ab]", "[ab]", "[1-3]", "[12]"), 0..8),
            configs in prop::collection::vec(("[ab]", "[ab]", prop::collection::vec(("[1-3]", "[12]"), 0..3)), 0..5),
            foreign in prop::option::of("[ab]-[1-3]"),
            published: bool,
        ) {
            let maps = maps.iter().map(|(namespace, config, version, value)| map(namespace, config, version, value));
            let mut objects = BTreeMap::new();
            for (namespace, name, versions) in &configs {
                let versions: BTreeMap<&str, &str> = versions.iter().map(|(version, value)| (version.as_str(), value.as_str())).collect();
                let mut object = config(namespace, name, &versions.into_iter().collect::<Vec<_>>());
                if published {
                    object.1.data["status"]["publishedVersion"] = "1".into();
                }
                let part = object.1.data["status"].pointer_mut("/versions/0/parts/0/name");
                if let (Some(part), Some(foreign)) = (part, &foreign) {
                    *part = foreign.as_str().into();
                }
                objects.insert((namespace, name), object);
            }
            exported(Cluster { objects: objects.into_values().collect(), maps: maps.collect(), ..Cluster::default() });
        }
    }
}
