//! The mark of a part whose creator may update the ConfigMap of the config's name. Only a marked version becomes
//! current by itself.
//!
//! The webhook makes the mark, and the controller accepts no other mark: it is a [note](crate::signed_notes) about the
//! whole part. On another part, or with other content, the mark is worth nothing. Its time is ignored, so that versions
//! become current even if a clock is wrong.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use nudge_api::PartKind;
use nudge_protocol::labels;

use super::digest::part_digest;
use crate::derived_keys::NoteKey;
use crate::signed_notes::{self, Clock};

/// The place of a part that is created: its object may lack the namespace.
#[derive(Clone, Copy, Debug)]
pub struct PartPlace<'a> {
    /// The kind of the part.
    pub kind: PartKind,
    /// The namespace of the request.
    pub namespace: &'a str,
}

/// Returns the mark of a part that is created now. `None` if its name is not known yet, because the API server is to
/// generate it.
pub fn mark<V: AsRef<[u8]>>(
    key: &NoteKey,
    place: PartPlace<'_>,
    part: &ObjectMeta,
    content: &BTreeMap<String, V>,
    now: Timestamp,
) -> Option<String> {
    let subject = signed_subject(place, part, content)?;
    Some(signed_notes::sign(&key.0, labels::MAY_ACTIVATE, &subject, "", now))
}

/// Returns whether the part has its mark.
pub fn is_marked<V: AsRef<[u8]>>(
    key: &NoteKey,
    kind: PartKind,
    part: &ObjectMeta,
    content: &BTreeMap<String, V>,
) -> bool {
    let written = part.annotations.as_ref().and_then(|annotations| annotations.get(labels::MAY_ACTIVATE));
    let place = PartPlace { kind, namespace: part.namespace.as_deref().unwrap_or_default() };
    let subject = signed_subject(place, part, content);
    written.zip(subject).is_some_and(|(written, subject)| {
        signed_notes::read(&key.0, labels::MAY_ACTIVATE, &subject, written, Clock::Any).is_some()
    })
}

/// Returns the texts that together identify the whole part.
pub(super) fn signed_subject<V: AsRef<[u8]>>(
    PartPlace { kind, namespace }: PartPlace<'_>,
    part: &ObjectMeta,
    content: &BTreeMap<String, V>,
) -> Option<[String; 8]> {
    let name = part.name.clone().filter(|name| !name.is_empty())?;
    let label = |label: &str| part.labels.as_ref().and_then(|labels| labels.get(label)).cloned().unwrap_or_default();
    let parts = part.annotations.as_ref().and_then(|annotations| annotations.get(labels::PARTS));
    let [config, version, number] = [labels::CONFIG, labels::VERSION, labels::PART].map(label);
    let (parts, digest) = (parts.cloned().unwrap_or_default(), part_digest(content, None));
    Some([namespace.to_owned(), kind.to_string(), name, config, version, number, parts, digest])
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::signed_notes::tests::note_key;

    type Content = BTreeMap<String, String>;

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
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
        let mark = mark(
            &note_key(1),
            PartPlace { kind: PartKind::ConfigMap, namespace: "team" },
            &meta,
            &content,
            second(1_790_000_000),
        )
        .unwrap();
        meta.annotations.get_or_insert_default().insert(labels::MAY_ACTIVATE.to_owned(), mark);
        (meta, content)
    }

    #[test]
    fn a_mark_holds_for_its_part_and_no_other() {
        let holds = |change: &dyn Fn(&mut ObjectMeta, &mut Content)| {
            let (mut meta, mut content) = marked();
            change(&mut meta, &mut content);
            is_marked(&note_key(1), PartKind::ConfigMap, &meta, &content)
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
        assert!(holds(&|meta, _| meta.creation_timestamp = Some(Time(second(1_700_000_000)))), "a clock is off");
        let (meta, content) = marked();
        assert!(!is_marked(&note_key(2), PartKind::ConfigMap, &meta, &content), "another key");
        assert!(!is_marked(&note_key(1), PartKind::Secret, &meta, &content), "another kind");
    }

    #[test]
    fn what_has_no_name_yet_gets_no_mark() {
        let (mut meta, content) = part();
        meta.name = None;
        meta.generate_name = Some("shop-".into());
        assert_eq!(
            mark(
                &note_key(1),
                PartPlace { kind: PartKind::ConfigMap, namespace: "team" },
                &meta,
                &content,
                second(1_790_000_000)
            ),
            None
        );
    }
}
