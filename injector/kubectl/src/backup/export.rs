//! An export after it was read and checked, with each object in its place and each version as it was sealed.

use std::collections::{BTreeMap, BTreeSet};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use nudge_api::VersionedConfig;
use nudge_core::derived_keys::{KEY_BYTES, Keys};
use nudge_core::versions::Seals;
use nudge_protocol::names::{is_dns_label, is_object_name};
use serde_json::Value;
use zeroize::Zeroizing;

use super::document::{API, CONTENT_KEY, DocumentKind, ENCRYPTED, FORMAT, HEADER, Header, METADATA, Place};
use super::part::{is_published, parts, seals};
use super::stream;
use crate::failure::Failure;

/// The maximum number of objects that a refusal names.
const MAX_NAMED_OBJECTS: usize = 20;

/// The content of an export.
pub(crate) struct ParsedExport {
    pub(crate) header: Header,
    pub(crate) objects: BTreeMap<Place, Value>,
    pub(crate) configs: BTreeMap<Place, VersionedConfig>,
    /// The Secrets, as the program age encrypted them.
    pub(crate) encrypted: Option<String>,
    /// The content key, if it is among the Secrets that were decrypted.
    pub(crate) content_key: Option<Zeroizing<Vec<u8>>>,
}

impl ParsedExport {
    /// Reads an export and checks it.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let mut documents = stream::read(text)?.into_iter();
        let header = header(documents.next().map(|(_, document)| document))?;
        let (objects, configs, encrypted) = (BTreeMap::new(), BTreeMap::new(), None);
        let mut export = Self { header, objects, configs, encrypted, content_key: None };
        for (line, document) in documents {
            if document["kind"] == ENCRYPTED && document["apiVersion"] == API {
                let Some(text) = document["armored"].as_str().filter(|_| export.encrypted.is_none()) else {
                    return Err(Failure::new(format!(
                        "the encrypted Secrets at line {line} are damaged, or are there twice"
                    )));
                };
                export.encrypted = Some(text.to_owned());
                continue;
            }
            if DocumentKind::of(&document) == Some(DocumentKind::Secret) {
                return Err(Failure::new(format!("line {line}: the export has a Secret that is not encrypted")));
            }
            export.add(&format!("line {line}"), document)?;
        }
        export.check()?;
        Ok(export)
    }

    /// Adds the decrypted Secrets.
    pub(crate) fn add_secrets(&mut self, text: &str) -> Result<(), Failure> {
        for (line, document) in stream::read(text)? {
            let place = format!("line {line} of the encrypted Secrets");
            if document["kind"] == CONTENT_KEY && document["apiVersion"] == API {
                let key = document["key"].as_str().and_then(|key| BASE64_STANDARD.decode(key).ok());
                let Some(key) = key.filter(|key| key.len() == KEY_BYTES) else {
                    return Err(Failure::new(format!("{place}: the content key does not have {KEY_BYTES} bytes")));
                };
                self.content_key = Some(Zeroizing::new(key));
            } else if DocumentKind::of(&document) == Some(DocumentKind::Secret) {
                self.add(&place, document)?;
            } else {
                return Err(Failure::new(format!("{place}: it is neither a Secret nor the content key")));
            }
        }
        self.check()
    }

    /// Adds an object. Messages name the place of its document by `at`.
    fn add(&mut self, at: &str, document: Value) -> Result<(), Failure> {
        let Some(kind) = DocumentKind::of(&document) else {
            return Err(Failure::new(format!("{at}: an export has no objects of this apiVersion and kind")));
        };
        let text = |field: &str| document["metadata"][field].as_str().unwrap_or_default();
        let place = Place::new(kind, text("namespace"), text("name"));
        // Namespace and name become parts of URLs.
        let is_valid_name = is_object_name(&place.name)
            && if kind == DocumentKind::Policy { place.namespace.is_empty() } else { is_dns_label(&place.namespace) };
        if !is_valid_name {
            return Err(Failure::new(format!("{at}: the object has no name, or one that is not allowed")));
        }
        // Owners and finalizers do not belong in an export.
        let fields = document["metadata"].as_object().into_iter().flatten();
        if let Some((field, _)) = fields.into_iter().find(|(field, _)| !METADATA.contains(&field.as_str())) {
            return Err(Failure::new(format!("{at}: {place} has metadata.{field}, which no object of an export has")));
        }
        if kind == DocumentKind::Config {
            let config: VersionedConfig = serde_json::from_value(document.clone())
                .map_err(|error| Failure::new(format!("{at}: {place} can't be read: {error}")))?;
            self.configs.insert(place.clone(), config);
        }
        if self.objects.contains_key(&place) {
            return Err(Failure::new(format!("{at}: {place} is in the export twice")));
        }
        self.objects.insert(place, document);
        Ok(())
    }

    /// Checks that every object belongs to a config, as it was sealed. A version that names an object of another
    /// version is broken, but does not harm the other version. Seals of Secrets can be checked only with the content
    /// key.
    fn check(&self) -> Result<(), Failure> {
        let (mut accepted, mut faults) = (BTreeSet::new(), BTreeMap::new());
        for (place, config) in &self.configs {
            let seals = self.seals(place, config)?;
            for sealed in parts(place, config) {
                let object = sealed.place();
                let Some(document) = self.objects.get(&object) else { continue };
                if let Some(fault) = sealed.fault(document, seals.as_ref()) {
                    faults.entry(object).or_insert_with(|| format!("{fault} of {}", sealed.title()));
                } else {
                    accepted.insert(object);
                }
            }
            if is_published(config) {
                accepted.insert(Place::new(DocumentKind::ConfigMap, &place.namespace, &place.name));
            }
        }
        if let Some((object, fault)) = faults.iter().find(|(object, _)| !accepted.contains(*object)) {
            return Err(Failure::new(format!("{object} {fault}: the export was changed; nothing was imported")));
        }
        let parts =
            self.objects.keys().filter(|place| matches!(place.kind, DocumentKind::ConfigMap | DocumentKind::Secret));
        let strays: Vec<&Place> = parts.filter(|place| !accepted.contains(*place)).collect();
        if strays.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = strays.iter().take(MAX_NAMED_OBJECTS).map(ToString::to_string).collect();
        let count_of_others = if strays.len() > MAX_NAMED_OBJECTS {
            format!(" and {} more", strays.len() - MAX_NAMED_OBJECTS)
        } else {
            String::new()
        };
        Err(Failure::new(format!(
            "no config of the export has {}{count_of_others}: somebody has added that to the file, so nothing was imported",
            names.join(", ")
        )))
    }

    /// Returns the seals of a config's Secrets, if the content key is known.
    pub(crate) fn seals(&self, place: &Place, config: &VersionedConfig) -> Result<Option<Seals>, Failure> {
        let content_key = self.content_key.as_ref().map(|key| Keys::of_root(key).content);
        seals(place, config, content_key.as_ref()).map_err(|cause| Failure::new(format!("{place}: {cause}")))
    }

    /// Returns the namespaces of all objects.
    pub(crate) fn namespaces(&self) -> BTreeSet<&str> {
        self.objects.keys().map(|place| place.namespace.as_str()).filter(|namespace| !namespace.is_empty()).collect()
    }
}

fn header(document: Option<Value>) -> Result<Header, Failure> {
    let is_header = |document: &Value| document["apiVersion"] == API && document["kind"] == HEADER;
    let Some(document) = document.filter(is_header) else {
        return Err(Failure::new("this is not an export: it does not begin with a document of kind Export"));
    };
    if document["format"] != FORMAT {
        return Err(Failure::new(format!(
            "the export has format {}, and this program reads format {FORMAT}; use the program that made it",
            document["format"]
        )));
    }
    serde_json::from_value(document)
        .map_err(|error| Failure::new(format!("the head of the export can't be read: {error}")))
}

#[cfg(test)]
mod tests {
    use nudge_core::identity::Identity;
    use nudge_core::keys::ConfigKey;
    use nudge_core::versions::part_digest;
    use serde_json::json;

    use super::super::stream::Writer;
    use super::*;

    const IDENTITY: &str = "0af7651cd43b41d58e2f0123456789ab";

    fn head() -> Value {
        json!({
            "apiVersion": API, "kind": HEADER, "format": FORMAT, "exportedAt": "2026-01-01T00:00:00Z", "program": "0.1.0",
            "namespaces": ["team"], "secrets": [], "encrypted": false, "contentKey": false, "leftOut": [], "missing": [], "missingCount": 0,
        })
    }

    fn part(kind: &str, value: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": kind, "immutable": true, "data": {"a": value},
            "metadata": {"name": "shop-1", "namespace": "team", "labels": {"nudge.dev/config": "shop", "nudge.dev/version": "1"}},
        })
    }

    fn config(kind: &str, digest: &str) -> Value {
        json!({
            "apiVersion": API, "kind": "VersionedConfig", "metadata": {"name": "shop", "namespace": "team", "generation": 3}, "spec": {},
            "status": {"internal": {"identity": IDENTITY}, "currentVersion": "1", "versions": [{
                "version": "1", "state": "Current", "keys": 1, "bytes": 1,
                "parts": [{"kind": kind, "name": "shop-1", "uid": "u", "digest": digest}],
            }]},
        })
    }

    fn digest(value: &str) -> String {
        part_digest(&BTreeMap::from([("a".to_owned(), value.as_bytes())]), None)
    }

    fn parse(documents: &[Value]) -> Result<ParsedExport, String> {
        let mut writer = Writer::default();
        for document in documents {
            writer.add("it", document).unwrap();
        }
        ParsedExport::parse(&writer.text()).map_err(|failure| failure.message)
    }

    #[test]
    fn an_export_is_read_with_its_versions_as_they_were_sealed() {
        let good = [head(), config("ConfigMap", &digest("1")), part("ConfigMap", "1")];
        let export = parse(&good).unwrap();
        assert_eq!((export.objects.len(), export.configs.len(), export.namespaces()), (2, 1, ["team"].into()));
        let tampered = parse(&[head(), config("ConfigMap", &digest("1")), part("ConfigMap", "2")]).err().unwrap();
        assert_eq!(
            tampered,
            "ConfigMap team/shop-1 does not have the content that was sealed as part of version 1 of config team/shop: the export was \
             changed; nothing was imported"
        );
        let mut other = part("ConfigMap", "1");
        other["metadata"]["labels"]["nudge.dev/version"] = "2".into();
        let refused = parse(&[head(), config("ConfigMap", &digest("1")), other]).err().unwrap();
        assert!(refused.starts_with("ConfigMap team/shop-1 does not have the labels"), "{refused}");
    }

    /// Returns another object of the namespace, as somebody may add it to the file.
    fn added(kind: &str, name: &str, labels: &Value) -> Value {
        let metadata = json!({"name": name, "namespace": "team", "labels": labels});
        json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "immutable": true, "data": {}})
    }

    #[test]
    fn what_no_config_of_the_export_names_is_refused_by_name() {
        let (labels, good) =
            (json!({"nudge.dev/config": "shop"}), [config("ConfigMap", &digest("1")), part("ConfigMap", "1")]);
        let with = |more: Value| parse(&[&[head()][..], &good, &[more]].concat());
        let mut elsewhere = added("ConfigMap", "aws-auth", &json!({}));
        elsewhere["metadata"]["namespace"] = "kube-system".into();
        // The config was never published, so no object of its name belongs to it.
        for odd in [elsewhere, added("ConfigMap", "other", &labels), added("ConfigMap", "shop", &labels)] {
            let named = format!(
                "ConfigMap {}/{}",
                odd["metadata"]["namespace"].as_str().unwrap(),
                odd["metadata"]["name"].as_str().unwrap()
            );
            let refused = with(odd).err().unwrap_or_else(|| panic!("{named} is taken"));
            assert!(refused.contains(&named) && refused.ends_with("nothing was imported"), "{refused}");
        }
        let mut published = good[0].clone();
        published["status"]["publishedVersion"] = "1".into();
        let all = [head(), published, good[1].clone(), added("ConfigMap", "shop", &json!({}))];
        assert_eq!(parse(&all).unwrap().objects.len(), 3, "what Nudge publishes");

        let mut export = parse(&[head(), config("Secret", "seal:1")]).unwrap();
        let mut writer = Writer::default();
        writer.add("it", &added("Secret", "cloud-admin", &labels)).unwrap();
        let refused = export.add_secrets(&writer.text()).expect_err("a Secret that no config names is taken").message;
        assert!(refused.contains("Secret team/cloud-admin"), "{refused}");
    }

    /// Returns a config that names a part of the other config.
    fn naming(name: &str, kind: &str, digest: &str) -> Value {
        let mut odd = config(kind, digest);
        odd["metadata"]["name"] = name.into();
        odd
    }

    #[test]
    fn a_version_that_names_the_object_of_another_config_costs_that_one_nothing() {
        for odd in ["odd", "zoo"] {
            let configs = [config("ConfigMap", &digest("1")), naming(odd, "ConfigMap", &digest("1"))];
            let export = parse(&[&[head()][..], &configs, &[part("ConfigMap", "1")]].concat()).unwrap();
            assert_eq!((export.configs.len(), export.objects.len()), (2, 3));
            let tampered = parse(&[&[head()][..], &configs, &[part("ConfigMap", "2")]].concat()).err().unwrap();
            assert!(
                tampered.contains("ConfigMap team/shop-1") && tampered.contains("nothing was imported"),
                "{tampered}"
            );
            let mut export = parse(&[head(), config("Secret", "seal:1"), naming(odd, "Secret", "seal:2")]).unwrap();
            let mut writer = Writer::default();
            writer.add("it", &part("Secret", "MQ==")).unwrap();
            assert_eq!(export.add_secrets(&writer.text()).map_err(|failure| failure.message), Ok(()));
        }
    }

    #[test]
    fn a_part_has_nothing_that_makes_it_more_than_content() {
        let refused = |change: &dyn Fn(&mut Value), what: &str| {
            let mut odd = part("ConfigMap", "1");
            change(&mut odd);
            let said = parse(&[head(), config("ConfigMap", &digest("1")), odd]).err();
            let said = said.unwrap_or_else(|| panic!("taken: {what}"));
            assert!(said.contains("ConfigMap team/shop-1") && said.contains(what), "{said}");
        };
        refused(&|odd| odd["immutable"] = false.into(), "immutable");
        refused(&|odd| odd["metadata"]["finalizers"] = json!(["a/b"]), "metadata.finalizers");
        refused(&|odd| odd["metadata"]["ownerReferences"] = json!([]), "metadata.ownerReferences");
        // A token of any service account of the namespace.
        let mut export = parse(&[head(), config("Secret", "seal:1")]).unwrap();
        let (mut writer, mut token) = (Writer::default(), part("Secret", "MQ=="));
        token["type"] = "kubernetes.io/service-account-token".into();
        writer.add("it", &token).unwrap();
        let refused = export.add_secrets(&writer.text()).expect_err("a token is taken").message;
        assert!(refused.contains("Secret team/shop-1 has a type"), "{refused}");
    }

    #[test]
    fn secrets_are_checked_where_the_key_is_there() {
        let (key, shop) = ([7; 32], ConfigKey::parse("team", "shop").unwrap());
        let content = Keys::of_root(&key).content;
        let keyed = part_digest(&BTreeMap::from([("a".to_owned(), b"pin")]), Some(&content));
        let seal = Seals::new(&content, &shop, Identity::parse(IDENTITY).unwrap()).seal("1", 1, &keyed);
        let content_key =
            |key: &[u8]| json!({"apiVersion": API, "kind": CONTENT_KEY, "key": BASE64_STANDARD.encode(key)});
        let with = |value: &str, key: Option<&[u8]>| {
            let mut export = parse(&[head(), config("Secret", &seal)]).unwrap();
            let mut writer = Writer::default();
            writer.add("it", &part("Secret", &BASE64_STANDARD.encode(value))).unwrap();
            if let Some(key) = key {
                writer.add("it", &content_key(key)).unwrap();
            }
            export.add_secrets(&writer.text()).map_err(|failure| failure.message)
        };
        assert_eq!(with("pin", Some(&key)), Ok(()));
        assert_eq!(with("other", None), Ok(()), "nobody can say; the hub can");
        let refused = with("other", Some(&key)).unwrap_err();
        assert!(
            refused.starts_with("Secret team/shop-1 does not have the content") && !refused.contains("other\""),
            "{refused}"
        );
        assert!(with("pin", Some(&[8; 32])).is_err());
        assert!(with("pin", Some(&[7; 31])).unwrap_err().contains("does not have 32 bytes"));
    }

    #[test]
    fn what_is_no_export_is_refused() {
        let refused = |documents: &[Value]| parse(documents).err().unwrap();
        assert!(refused(&[]).contains("does not begin with a document of kind Export"));
        assert!(refused(&[config("ConfigMap", "x")]).contains("does not begin with"));
        let mut newer = head();
        newer["format"] = 2.into();
        assert!(refused(&[newer]).contains("format 2, and this program reads format 1"));
        let mut pod = part("ConfigMap", "1");
        pod["kind"] = "Pod".into();
        assert!(refused(&[head(), pod]).contains("no objects of this apiVersion and kind"));
        let twice = part("ConfigMap", "1");
        assert!(refused(&[head(), twice.clone(), twice]).contains("ConfigMap team/shop-1 is in the export twice"));
        assert!(refused(&[head(), part("Secret", "MQ==")]).contains("is not encrypted"));
        for name in ["../../pods/x", "", "a/b", "A", "a..b", "-a"] {
            let mut odd = part("ConfigMap", "1");
            odd["metadata"]["name"] = name.into();
            assert!(refused(&[head(), odd]).contains("one that is not allowed"), "{name}");
            let mut odd = config("ConfigMap", "x");
            odd["status"]["versions"][0]["parts"][0]["name"] = name.into();
            assert!(refused(&[head(), odd]).contains("whose name is not allowed"), "{name}");
        }
    }
}
