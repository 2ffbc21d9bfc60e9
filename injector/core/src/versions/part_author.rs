//! The creator of a part of a version, as admission saw it: a [note](crate::signed_notes) about the whole part. If the
//! part names the user who set the spec of its source, the note covers that user, too.
//!
//! The webhook writes the note, and removes text that users wrote in its place. On another part, or with other content,
//! the note is worth nothing. A part that was created while the webhook was away has no note, or one that somebody else
//! obtained for it earlier. So a note must be as old as its part.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use nudge_api::PartKind;
use nudge_protocol::bounded_text::one_line;
use nudge_protocol::labels;

use super::mark::{PartPlace, signed_subject};
use crate::derived_keys::NoteKey;
use crate::signed_notes::{self, Clock};

/// The maximum length of a user's name. A name that is longer, or can't be shown in one line, counts as unknown.
pub const AUTHOR_BYTES: usize = 512;

/// Returns the annotation for a part that this user creates now; `None` if it can't name the part or the user.
pub fn made_by<V: AsRef<[u8]>>(
    key: &NoteKey,
    place: PartPlace<'_>,
    part: &ObjectMeta,
    content: &BTreeMap<String, V>,
    user: &str,
    now: Timestamp,
) -> Option<String> {
    if user.is_empty() || one_line(user, AUTHOR_BYTES) != user {
        return None;
    }
    let subject = signed_subject(place, part, content)?;
    Some(signed_notes::sign(&key.0, labels::MADE_BY, &with_setter(&subject, part), user, now))
}

/// Returns the user who created the part, if that is known.
pub fn author<V: AsRef<[u8]>>(
    key: &NoteKey,
    kind: PartKind,
    part: &ObjectMeta,
    content: &BTreeMap<String, V>,
) -> Option<String> {
    let annotation = part.annotations.as_ref()?.get(labels::MADE_BY)?;
    let place = PartPlace { kind, namespace: part.namespace.as_deref().unwrap_or_default() };
    let subject = signed_subject(place, part, content)?;
    let clock = Clock::Creation(part.creation_timestamp.as_ref());
    signed_notes::read(&key.0, labels::MADE_BY, &with_setter(&subject, part), annotation, clock).map(|note| note.value)
}

/// Returns the subject with the user who set the spec of the part's source. It is another text if no user is named.
fn with_setter<'a>(subject: &'a [String], part: &'a ObjectMeta) -> Vec<&'a str> {
    let setter = part.annotations.as_ref().and_then(|annotations| annotations.get(labels::SET_BY));
    subject.iter().chain(setter).map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::signed_notes::MAX_SKEW_SECONDS;
    use crate::signed_notes::tests::note_key;

    type Content = BTreeMap<String, String>;
    type Change = fn(&mut ObjectMeta, &mut Content);

    const PLACE: PartPlace<'static> = PartPlace { kind: PartKind::ConfigMap, namespace: "team" };
    const BORN: i64 = 1_790_000_000;
    const LATE: i64 = MAX_SKEW_SECONDS.cast_signed();

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn part() -> (ObjectMeta, Content) {
        let map =
            |pairs: &[(&str, &str)]| pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        let meta = ObjectMeta {
            name: Some("shop-2".to_owned()),
            namespace: Some("team".to_owned()),
            labels: Some(map(&[(labels::CONFIG, "shop"), (labels::VERSION, "2")])),
            creation_timestamp: Some(Time(second(BORN))),
            ..ObjectMeta::default()
        };
        (meta, map(&[("lives", "3")]))
    }

    fn made(user: &str, at: i64) -> (ObjectMeta, Content) {
        let (mut meta, content) = part();
        let note = made_by(&note_key(1), PLACE, &meta, &content, user, second(at));
        meta.annotations = note.map(|note| [(labels::MADE_BY.to_owned(), note)].into());
        (meta, content)
    }

    #[test]
    fn a_part_is_of_who_created_it_then_and_no_other_part_is() {
        let says = |at: i64, change: &dyn Fn(&mut ObjectMeta, &mut Content)| {
            let (mut meta, mut content) = made("alice", at);
            change(&mut meta, &mut content);
            author(&note_key(1), PartKind::ConfigMap, &meta, &content)
        };
        let alice = Some("alice".to_owned());
        assert_eq!(
            [says(BORN, &|_, _| ()), says(BORN - LATE, &|_, _| ()), says(BORN + LATE, &|_, _| ())],
            [alice.clone(), alice.clone(), alice]
        );
        for at in [BORN - LATE - 1, BORN + LATE + 1] {
            assert_eq!(says(at, &|_, _| ()), None, "it was got before, or is of a later part of that name");
        }
        let changes: [Change; 8] = [
            |meta, _| drop(meta.annotations.as_mut().unwrap().insert(labels::SET_BY.into(), "shop a b bob".into())),
            |meta, _| meta.namespace = Some("other".into()),
            |meta, _| meta.name = Some("shop-3".into()),
            |meta, _| drop(meta.labels.as_mut().unwrap().insert(labels::VERSION.into(), "3".into())),
            |_, content| drop(content.insert("lives".into(), "4".into())),
            |meta, _| meta.creation_timestamp = None,
            |meta, _| meta.annotations = None,
            |meta, _| {
                let note = meta.annotations.as_mut().unwrap().get_mut(labels::MADE_BY).unwrap();
                *note = note.replace("alice", "bob");
            },
        ];
        for (at, change) in changes.iter().enumerate() {
            assert_eq!(says(BORN, change), None, "{at}");
        }
        let (meta, content) = made("alice", BORN);
        assert_eq!(author(&note_key(2), PartKind::ConfigMap, &meta, &content), None, "another key");
        assert_eq!(author(&note_key(1), PartKind::Secret, &meta, &content), None, "another kind");
        let (meta, content) = made("system:serviceaccount:team:ci bot", BORN);
        assert_eq!(
            author(&note_key(1), PartKind::ConfigMap, &meta, &content).unwrap(),
            "system:serviceaccount:team:ci bot"
        );
    }

    #[test]
    fn who_cannot_be_named_is_not_known() {
        for user in ["", "a\nb", "a\u{202e}b", &"x".repeat(AUTHOR_BYTES + 1)] {
            assert_eq!(made(user, BORN).0.annotations, None, "{user:?}");
        }
        let (mut meta, content) = part();
        meta.name = None;
        assert_eq!(made_by(&note_key(1), PLACE, &meta, &content, "alice", second(BORN)), None);
    }
}
