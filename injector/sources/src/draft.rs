//! The draft of a version: the parts that are made from the content of a source.

use nudge_api::{ConfigSource, Explanation, Origin, PartKind, Reason};
use nudge_authoring::{Content, ContentError, Part, divide};
use nudge_core::sources::selects_key;

use crate::source_content::SourceContent;

/// A version before its objects are created.
#[derive(Default)]
pub(crate) struct VersionDraft {
    pub(crate) parts: Vec<Part>,
    pub(crate) origin: Option<Origin>,
}

impl VersionDraft {
    /// Returns the bytes of all keys and values.
    pub(crate) fn bytes(&self) -> usize {
        self.parts.iter().map(Part::bytes).fold(0, usize::saturating_add)
    }
}

/// Reads the draft from the content, with the keys that the source takes.
pub(crate) fn read(source: &ConfigSource, read: SourceContent) -> Result<VersionDraft, Explanation> {
    let name = read.origin.line();
    let refusal =
        |error: ContentError| Reason::SourceRefused.explained(format!("{name} can't become a version: {error}"));
    let prefix = &source.spec.prefix;
    let mut content = Content::default();
    for (key, mut value) in read.contents {
        if selects_key(&source.spec, &key) {
            let value = std::mem::take(&mut *value);
            content.add(read.kind == PartKind::Secret, format!("{prefix}{key}"), value).map_err(refusal)?;
        }
    }
    content.check().map_err(refusal)?;
    Ok(VersionDraft { parts: divide(content).map_err(refusal)?, origin: Some(read.origin) })
}

#[cfg(test)]
mod tests {
    use nudge_core::versions::contents_of;
    use serde_json::{Value, json};

    use super::*;

    fn read_with(spec: &Value, pairs: &[(&str, &str)]) -> Result<VersionDraft, Explanation> {
        let auth = json!({"kubernetes": {"role": "shop", "serviceAccount": "shop"}});
        let vault = json!({"address": "https://vault:8200", "auth": auth, "kv": {"path": "shop"}});
        let mut spec_json = json!({"from": {"vault": vault}});
        spec_json.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let source = ConfigSource::new("shop", serde_json::from_value(spec_json).unwrap());
        let text = pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        let origin = Origin::read(&json!({"kind": "Vault", "url": "https://vault:8200"}).to_string()).unwrap();
        read(&source, SourceContent { kind: PartKind::Secret, origin, contents: contents_of(Some(text), None) })
    }

    const TLS: &[(&str, &str)] = &[("tls.crt", "a"), ("tls.key", "b")];

    #[test]
    fn a_secret_stays_a_secret() {
        let prefixed = read_with(&json!({"prefix": "web."}), TLS).unwrap();
        assert_eq!((prefixed.parts.len(), prefixed.parts[0].kind), (1, PartKind::Secret));
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
            let refused = read_with(&spec, pairs).err().unwrap();
            assert!(refused.message.contains(part) && !refused.message.contains("hunter2"), "{}", refused.message);
            assert!(
                refused.message.starts_with("Vault https://vault:8200 can't become a version: "),
                "{}",
                refused.message
            );
        }
    }
}
