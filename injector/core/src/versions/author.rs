//! Who created a part of a version, as admission saw it: an annotation with an HMAC under a key that only Nudge has, over all that the part is,
//! the user and the time, and over who set the spec of the source that made it, where it says so.
//!
//! The webhook writes it and removes what users wrote there. On another part, or with other content, it is worth nothing. A part whose webhook
//! was away has none, or one that somebody else has got for it before: it must be as old as the part.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use nudge_api::PartKind;
use nudge_protocol::bounded_text::one_line;
use nudge_protocol::labels;
use ring::hmac;

use super::mark::message;

/// What separates these from marks and others, which the same key makes.
const PURPOSE: &[u8] = b"nudge.dev/made-by";
/// Longest name of a user. One that is longer, or can't be shown in one line, is not known.
pub const AUTHOR_BYTES: usize = 512;
/// So many seconds a clock of admission may differ from that of the API server.
const SKEW: i64 = 300;

/// The annotation that says that this user creates the part now. `None` where the part's name, or the user, can't be said.
pub fn made_by<V: AsRef<[u8]>>(
    key: &hmac::Key,
    (kind, namespace): (PartKind, &str),
    part: &ObjectMeta,
    content: &BTreeMap<String, V>,
    (user, now): (&str, Timestamp),
) -> Option<String> {
    if user.is_empty() || one_line(user, AUTHOR_BYTES) != user {
        return None;
    }
    let second = now.as_second();
    let tag = hmac::sign(&own_key(key), &signed(message(kind, namespace, part, content)?, part, user, second));
    Some(format!("{second} {} {user}", STANDARD.encode(tag)))
}

/// Who created the part, if that is known.
pub fn author<V: AsRef<[u8]>>(
    key: &hmac::Key,
    kind: PartKind,
    part: &ObjectMeta,
    content: &BTreeMap<String, V>,
) -> Option<String> {
    let annotation = part.annotations.as_ref()?.get(labels::MADE_BY)?;
    let mut words = annotation.splitn(3, ' ');
    let (second, tag, user) = (words.next()?.parse::<i64>().ok()?, words.next()?, words.next()?);
    let created = part.creation_timestamp.as_ref()?.0.as_second();
    if created.abs_diff(second) > SKEW.unsigned_abs() || one_line(user, AUTHOR_BYTES) != user {
        return None;
    }
    let message = message(kind, part.namespace.as_deref().unwrap_or_default(), part, content)?;
    hmac::verify(&own_key(key), &signed(message, part, user, second), &STANDARD.decode(tag).ok()?).ok()?;
    Some(user.to_owned())
}

fn own_key(key: &hmac::Key) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(key, PURPOSE).as_ref())
}

/// The message is a list of texts, each behind its length, and so is this.
fn signed(mut message: Vec<u8>, part: &ObjectMeta, user: &str, second: i64) -> Vec<u8> {
    let setter = part.annotations.as_ref().and_then(|annotations| annotations.get(labels::SET_BY));
    for text in [user, &second.to_string()].into_iter().chain(setter.map(String::as_str)) {
        message.extend((text.len() as u64).to_be_bytes());
        message.extend(text.as_bytes());
    }
    message
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use proptest::prelude::*;

    use super::*;

    type Content = BTreeMap<String, String>;
    type Change = fn(&mut ObjectMeta, &mut Content);

    const BORN: i64 = 1_790_000_000;

    fn key(byte: u8) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &[byte; 32])
    }

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
        let note = made_by(&key(1), (PartKind::ConfigMap, "team"), &meta, &content, (user, second(at)));
        meta.annotations = note.map(|note| [(labels::MADE_BY.to_owned(), note)].into());
        (meta, content)
    }

    #[test]
    fn a_part_is_of_who_created_it_then_and_no_other_part_is() {
        let says = |at: i64, change: &dyn Fn(&mut ObjectMeta, &mut Content)| {
            let (mut meta, mut content) = made("alice", at);
            change(&mut meta, &mut content);
            author(&key(1), PartKind::ConfigMap, &meta, &content)
        };
        let alice = Some("alice".to_owned());
        assert_eq!(
            [says(BORN, &|_, _| ()), says(BORN - SKEW, &|_, _| ()), says(BORN + SKEW, &|_, _| ())],
            [alice.clone(), alice.clone(), alice]
        );
        for at in [BORN - SKEW - 1, BORN + SKEW + 1] {
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
        assert_eq!(author(&key(2), PartKind::ConfigMap, &meta, &content), None, "another key");
        assert_eq!(author(&key(1), PartKind::Secret, &meta, &content), None, "another kind");
        let (meta, content) = made("system:serviceaccount:team:ci bot", BORN);
        assert_eq!(author(&key(1), PartKind::ConfigMap, &meta, &content).unwrap(), "system:serviceaccount:team:ci bot");
    }

    #[test]
    fn who_cannot_be_named_is_not_known() {
        for user in ["", "a\nb", "a\u{202e}b", &"x".repeat(AUTHOR_BYTES + 1)] {
            assert_eq!(made(user, BORN).0.annotations, None, "{user:?}");
        }
        let (mut meta, content) = part();
        meta.name = None;
        assert_eq!(made_by(&key(1), (PartKind::ConfigMap, "team"), &meta, &content, ("alice", second(BORN))), None);
    }

    proptest! {
        #[test]
        fn nothing_that_a_user_writes_counts(tag in "\\PC{0,60}", user in "[a-z]{1,9}") {
            let (mut meta, content) = made("alice", BORN);
            for note in [tag.clone(), format!("{BORN} {} {user}", STANDARD.encode(&tag))] {
                meta.annotations.as_mut().unwrap().insert(labels::MADE_BY.to_owned(), note);
                prop_assert_eq!(author(&key(1), PartKind::ConfigMap, &meta, &content), None);
            }
        }
    }
}
