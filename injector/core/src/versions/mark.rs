//! The mark of a part whose maker may update the ConfigMap of the config's name: only such a part becomes current without anybody
//! setting `spec.version` to it.
//!
//! The webhook makes it, and the controller believes no other: an HMAC under a key that only the injector has, over all that the part
//! is. It is public, since everyone who reads the part reads it; on another part, or with other content, it is worth nothing.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nudge_api::PartKind;
use nudge_protocol::labels;
use ring::hmac;

use super::digest::part_digest;

/// What separates marks from the digests of contents, which the same key makes.
const PURPOSE: &[u8] = b"nudge.dev/may-activate";

/// The mark of a part. `None` where its name is not known yet: the API server is to make it up.
pub fn mark<V: AsRef<[u8]>>(
    key: &hmac::Key,
    kind: PartKind,
    namespace: &str,
    part: &ObjectMeta,
    content: &BTreeMap<String, V>,
) -> Option<String> {
    let message = message(kind, namespace, part, content)?;
    Some(STANDARD.encode(hmac::sign(&own_key(key), &message)))
}

/// Whether the part has its mark.
pub fn is_marked<V: AsRef<[u8]>>(
    key: &hmac::Key,
    kind: PartKind,
    part: &ObjectMeta,
    content: &BTreeMap<String, V>,
) -> bool {
    let written = part.annotations.as_ref().and_then(|annotations| annotations.get(labels::MAY_ACTIVATE));
    let written = written.and_then(|written| STANDARD.decode(written).ok());
    let message = message(kind, part.namespace.as_deref().unwrap_or_default(), part, content);
    written.zip(message).is_some_and(|(written, message)| hmac::verify(&own_key(key), &message, &written).is_ok())
}

fn own_key(key: &hmac::Key) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(key, PURPOSE).as_ref())
}

pub(super) fn message<V: AsRef<[u8]>>(
    kind: PartKind,
    namespace: &str,
    part: &ObjectMeta,
    content: &BTreeMap<String, V>,
) -> Option<Vec<u8>> {
    let name = part.name.as_deref().filter(|name| !name.is_empty())?;
    let label = |label: &str| part.labels.as_ref().and_then(|labels| labels.get(label)).map_or("", String::as_str);
    let parts = part.annotations.as_ref().and_then(|annotations| annotations.get(labels::PARTS));
    let (kind, digest) = (kind.to_string(), part_digest(content, None));
    let [config, version, number] = [labels::CONFIG, labels::VERSION, labels::PART].map(label);
    let parts = parts.map_or("", String::as_str);
    let mut message = Vec::new();
    for field in [namespace, &kind, name, config, version, number, parts, &digest] {
        message.extend((field.len() as u64).to_be_bytes());
        message.extend(field.as_bytes());
    }
    Some(message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Content = BTreeMap<String, String>;

    fn key(byte: u8) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &[byte; 32])
    }

    fn part() -> (ObjectMeta, Content) {
        let map =
            |pairs: &[(&str, &str)]| pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        let labels = map(&[(labels::CONFIG, "shop"), (labels::VERSION, "1.0.1"), (labels::PART, "1")]);
        let meta = ObjectMeta {
            name: Some("shop-1.0.1".to_owned()),
            namespace: Some("team".to_owned()),
            labels: Some(labels),
            annotations: Some(map(&[(labels::PARTS, "2")])),
            ..ObjectMeta::default()
        };
        (meta, map(&[("lives", "3")]))
    }

    fn marked() -> (ObjectMeta, Content) {
        let (mut meta, content) = part();
        let mark = mark(&key(1), PartKind::ConfigMap, "team", &meta, &content).unwrap();
        meta.annotations.get_or_insert_default().insert(labels::MAY_ACTIVATE.to_owned(), mark);
        (meta, content)
    }

    #[test]
    fn a_mark_holds_for_its_part_and_no_other() {
        let holds = |change: &dyn Fn(&mut ObjectMeta, &mut Content)| {
            let (mut meta, mut content) = marked();
            change(&mut meta, &mut content);
            is_marked(&key(1), PartKind::ConfigMap, &meta, &content)
        };
        assert!(holds(&|_, _| {}));
        assert!(holds(&|meta, _| drop(meta.labels.as_mut().unwrap().insert("team".into(), "a".into()))));
        assert!(!holds(&|meta, _| meta.namespace = Some("other".into())));
        assert!(!holds(&|meta, _| meta.name = Some("shop-1.0.2".into())));
        for label in [labels::CONFIG, labels::VERSION, labels::PART] {
            assert!(!holds(&|meta, _| drop(meta.labels.as_mut().unwrap().insert(label.into(), "2".into()))), "{label}");
        }
        assert!(!holds(&|meta, _| drop(meta.annotations.as_mut().unwrap().insert(labels::PARTS.into(), "1".into()))));
        assert!(!holds(&|meta, _| drop(meta.annotations.as_mut().unwrap().remove(labels::MAY_ACTIVATE))));
        assert!(!holds(&|_, content| drop(content.insert("lives".into(), "4".into()))));
        let (meta, content) = marked();
        assert!(!is_marked(&key(2), PartKind::ConfigMap, &meta, &content), "another key");
        assert!(!is_marked(&key(1), PartKind::Secret, &meta, &content), "another kind");
    }

    #[test]
    fn what_has_no_name_yet_gets_no_mark() {
        let (mut meta, content) = part();
        meta.name = None;
        meta.generate_name = Some("shop-".into());
        assert_eq!(mark(&key(1), PartKind::ConfigMap, "team", &meta, &content), None);
    }

    /// The digests of Secrets are in the status, and the creator of a Secret chooses its content.
    #[test]
    fn no_digest_of_a_content_is_a_mark() {
        let (meta, content) = part();
        let mark = mark(&key(1), PartKind::ConfigMap, "team", &meta, &content).unwrap();
        let message = message(PartKind::ConfigMap, "team", &meta, &content).unwrap();
        assert_ne!(mark, STANDARD.encode(hmac::sign(&key(1), &message)));
    }

    proptest! {
        #[test]
        fn nothing_that_is_written_there_counts(written in "\\PC{0,60}") {
            let (mut meta, content) = marked();
            let own = meta.annotations.as_mut().unwrap().insert(labels::MAY_ACTIVATE.to_owned(), written.clone());
            prop_assert_eq!(is_marked(&key(1), PartKind::ConfigMap, &meta, &content), own == Some(written));
        }
    }
}
