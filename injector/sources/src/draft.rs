//! The draft of a version: the parts that are made from the content of a living object.

use nudge_api::{ConfigSource, Explanation, Origin, PartKind, Reason};
use nudge_authoring::{Content, ContentError, OPAQUE, Part, divide};
use nudge_core::sources::{object_refusal, selects_key};

use crate::upstream::Object;

/// A version before its objects are created.
#[derive(Default)]
pub(crate) struct VersionDraft {
    pub(crate) parts: Vec<Part>,
    /// The type of the version's Secrets.
    pub(crate) secret_type: String,
    pub(crate) origin: Option<Origin>,
}

impl VersionDraft {
    /// Returns the bytes of all keys and values.
    pub(crate) fn bytes(&self) -> usize {
        self.parts.iter().map(Part::bytes).fold(0, usize::saturating_add)
    }
}

/// Reads the draft from the object, with the keys that the source takes.
pub(crate) fn read(source: &ConfigSource, object: Object) -> Result<VersionDraft, Explanation> {
    if let Some(refusal) = object_refusal(object.kind, &object.meta, &object.secret_type) {
        return Err(refusal);
    }
    let name = object.name();
    let refusal =
        |error: ContentError| Reason::SourceRefused.explained(format!("{name} can't become a version: {error}"));
    let (key_count, prefix) = (object.contents.len(), &source.spec.prefix);
    let mut content = Content::default();
    for (key, mut value) in object.contents {
        if selects_key(&source.spec, &key) {
            let value = std::mem::take(&mut *value);
            content.add(object.kind == PartKind::Secret, format!("{prefix}{key}"), value).map_err(refusal)?;
        }
    }
    content.check().map_err(refusal)?;
    let is_whole = content.open.len().saturating_add(content.secret.len()) == key_count && prefix.is_empty();
    let parts = divide(content).map_err(refusal)?;
    // A type requires certain keys, which a part of the data may not have.
    let secret_type = if is_whole && parts.len() == 1 { object.secret_type } else { OPAQUE.to_owned() };
    Ok(VersionDraft { parts, secret_type, origin: Some(object.origin) })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use nudge_api::OriginKind;
    use nudge_core::versions::contents_of;
    use serde_json::{Value, json};

    use super::*;
    use crate::upstream::origin;

    fn read_with(spec: &Value, kind: PartKind, pairs: &[(&str, &str)]) -> Result<VersionDraft, Explanation> {
        let mut spec_json = json!({"from": {"secret": {"name": "live"}}});
        spec_json.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let source = ConfigSource::new("shop", serde_json::from_value(spec_json).unwrap());
        let text = pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        let secret_type = if kind == PartKind::Secret { "kubernetes.io/tls".to_owned() } else { String::new() };
        let origin = Origin { url: "live".into(), ..origin(OriginKind::Secret, &ObjectMeta::default()) };
        let contents = contents_of(Some(text), None);
        read(&source, Object { secret_type, contents, ..Object::empty(kind, origin) })
    }

    const TLS: &[(&str, &str)] = &[("tls.crt", "a"), ("tls.key", "b")];

    #[test]
    fn a_secret_stays_a_secret_and_keeps_its_type_where_it_is_whole() {
        let whole = read_with(&json!({}), PartKind::Secret, TLS).unwrap();
        assert_eq!(
            (whole.parts.len(), whole.parts[0].kind, whole.secret_type.as_str()),
            (1, PartKind::Secret, "kubernetes.io/tls")
        );
        for spec in [json!({"exclude": ["tls.key"]}), json!({"prefix": "web."})] {
            assert_eq!(read_with(&spec, PartKind::Secret, TLS).unwrap().secret_type, OPAQUE);
        }
        let prefixed = read_with(&json!({"prefix": "web."}), PartKind::Secret, TLS).unwrap();
        assert_eq!(prefixed.parts[0].content.keys().collect::<Vec<_>>(), ["web.tls.crt", "web.tls.key"]);
    }

    #[test]
    fn what_can_be_no_version_is_refused_without_a_value() {
        let long = "hunter2".repeat(200_000);
        for (spec, pairs, part) in [
            (json!({"include": ["other"]}), TLS, "at least one key"),
            (json!({"prefix": "nudge."}), TLS, "nudge.tls.crt"),
            (json!({}), &[("big", long.as_str())][..], "divide it into several keys"),
        ] {
            let refused = read_with(&spec, PartKind::Secret, pairs).err().unwrap();
            assert!(refused.message.contains(part) && !refused.message.contains("hunter2"), "{}", refused.message);
            assert!(refused.message.starts_with("Secret live can't become a version: "), "{}", refused.message);
        }
    }
}
