//! The parser of objects that users can write. A user who may patch an object may write anything into its
//! `managedFields`, such as a time that no type takes. Nothing here depends on them, so they are removed before an
//! object is parsed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use kube::Resource;
use kube::api::ObjectMeta;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

/// An object without its `managedFields`. `Debug` shows no content, since it may be a Secret.
#[derive(Clone)]
pub struct Lenient<K>(pub K);

impl<K> fmt::Debug for Lenient<K> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Lenient")
    }
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Lenient<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        parse(&raw).map(Self).map_err(|error| D::Error::custom(parse_fault(&error)))
    }
}

impl<K: Serialize> Serialize for Lenient<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<K: Resource> Resource for Lenient<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dynamic_type: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dynamic_type)
    }
    fn group(dynamic_type: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dynamic_type)
    }
    fn version(dynamic_type: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dynamic_type)
    }
    fn plural(dynamic_type: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dynamic_type)
    }
    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

/// Parses an object, without its `managedFields`.
pub(crate) fn parse<T: DeserializeOwned>(raw: &RawValue) -> serde_json::Result<T> {
    let mut object: BTreeMap<String, &RawValue> = serde_json::from_str(raw.get())?;
    let mut metadata: BTreeMap<String, &RawValue> =
        object.get("metadata").map_or(Ok(BTreeMap::new()), |metadata| serde_json::from_str(metadata.get()))?;
    if metadata.remove("managedFields").is_none() {
        return serde_json::from_str(raw.get());
    }
    let metadata = to_raw_value(&metadata)?;
    object.insert("metadata".to_owned(), &metadata);
    serde_json::from_str(&serde_json::to_string(&object)?)
}

/// Returns why an object can't be parsed, without values that the error may quote.
pub(crate) fn parse_fault(error: &serde_json::Error) -> String {
    format!("{:?} error in column {} of its JSON", error.classify(), error.column())
}

/// The names of an object that can't be parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Names {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) resource_version: Option<String>,
}

impl Names {
    pub(crate) fn of(raw: &RawValue) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Named {
            metadata: Names,
        }
        serde_json::from_str::<Named>(raw.get()).map(|named| named.metadata).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;
    use kube::core::ObjectList;

    use super::*;

    /// Returns a Secret with managedFields that no type takes: a time that the API server has stored, and more levels
    /// than a parser takes.
    fn hostile(managed: &str) -> String {
        format!(
            r#"{{"apiVersion": "v1", "kind": "Secret", "metadata": {{"name": "s", "managedFields": [{managed}], "namespace": "ns",
                "resourceVersion": "7", "labels": {{"a": "b"}}}}, "data": {{"key": "aHVudGVyMg=="}}}}"#
        )
    }

    #[test]
    fn no_managed_fields_keep_an_object_from_being_read() {
        let deep = format!(r#"{{"fieldsV1": {}1{}}}"#, r#"{"f:a": "#.repeat(1000), "}".repeat(1000));
        for managed in [r#"{"time": "10000-01-01T23:58:59Z"}"#, "7", &deep] {
            let text = hostile(managed);
            assert!(serde_json::from_str::<Secret>(&text).is_err(), "{managed}");
            let Lenient(secret) = serde_json::from_str::<Lenient<Secret>>(&text).unwrap();
            assert_eq!(secret.data.unwrap()["key"].0, b"hunter2");
            assert_eq!((secret.metadata.name.as_deref(), secret.metadata.labels.unwrap().len()), (Some("s"), 1));
            let list = format!(r#"{{"apiVersion": "v1", "kind": "SecretList", "metadata": {{}}, "items": [{text}]}}"#);
            assert_eq!(serde_json::from_str::<ObjectList<Lenient<Secret>>>(&list).unwrap().items.len(), 1);
        }
    }

    #[test]
    fn what_cannot_be_parsed_has_its_names_and_shows_no_value() {
        let text = hostile("").replace("aHVudGVyMg==", "not base64: hunter2");
        let error = serde_json::from_str::<Lenient<Secret>>(&text).unwrap_err();
        assert!(!error.to_string().contains("hunter"), "{error}");
        let raw: &RawValue = serde_json::from_str(&text).unwrap();
        let names = Names { namespace: "ns".to_owned(), name: "s".to_owned(), resource_version: Some("7".to_owned()) };
        assert_eq!(Names::of(raw), names);
        assert_eq!(format!("{:?}", Lenient(Secret::default())), "Lenient");
    }
}
