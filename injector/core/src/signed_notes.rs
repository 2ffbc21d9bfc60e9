//! Signed notes that Nudge writes into annotations and later believes: `TIME TAG VALUE`. The tag is an HMAC over the
//! time, the value, and the subject of the note.
//!
//! Each annotation has a key of its own, so a note for one annotation never counts in another. Anybody may read a note.
//! With another object, value or time, the note is invalid.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use ring::hmac;

use crate::derived_keys::sub_key;

/// The maximum difference in seconds between the clocks of admission and the API server.
pub(crate) const MAX_SKEW_SECONDS: u64 = 300;

/// The clock that the time of a note must agree with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock<'a> {
    /// The creation time of the object with the note, which only the API server sets, once. A note that was signed long
    /// before says nothing about the object.
    Creation(Option<&'a Time>),
    /// No clock: the note covers a field, which may be set at any time.
    Any,
}

/// The content of a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// The time, in whole seconds.
    pub time: Timestamp,
    /// The value, which may be empty.
    pub value: String,
}

impl Clock<'_> {
    fn agrees(self, time: Timestamp) -> bool {
        match self {
            Self::Creation(created) => {
                created.is_some_and(|created| created.0.as_second().abs_diff(time.as_second()) <= MAX_SKEW_SECONDS)
            }
            Self::Any => true,
        }
    }
}

/// Returns a note of the present time for the annotation `purpose`. It states `value` about `subject`.
pub(crate) fn sign(key: &hmac::Key, purpose: &str, subject: &[impl AsRef<str>], value: &str, now: Timestamp) -> String {
    let time = whole_second(now).to_string();
    let tag = STANDARD.encode(hmac::sign(&sub_key(key, purpose.as_bytes()), &message(&time, value, subject)));
    if value.is_empty() { format!("{time} {tag}") } else { format!("{time} {tag} {value}") }
}

/// Reads the note in the annotation `purpose`. Returns `None` if the purpose, the subject or the time is not right, or
/// the text is not a note.
pub(crate) fn read(
    key: &hmac::Key,
    purpose: &str,
    subject: &[impl AsRef<str>],
    text: &str,
    clock: Clock<'_>,
) -> Option<Note> {
    let mut words = text.splitn(3, ' ');
    let (time, tag, value) = (words.next()?, words.next()?, words.next().unwrap_or_default());
    let (key, tag) = (sub_key(key, purpose.as_bytes()), STANDARD.decode(tag).ok()?);
    hmac::verify(&key, &message(time, value, subject), &tag).ok()?;
    let note = Note { time: time.parse().ok()?, value: value.to_owned() };
    clock.agrees(note.time).then_some(note)
}

/// Returns the time in whole seconds, as notes have it.
pub(crate) fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or_default()
}

/// Encodes all texts, each behind its length.
fn message(time: &str, value: &str, subject: &[impl AsRef<str>]) -> Vec<u8> {
    let texts = [time, value].into_iter().chain(subject.iter().map(AsRef::as_ref));
    texts.flat_map(|text| (text.len() as u64).to_be_bytes().into_iter().chain(text.bytes())).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use nudge_protocol::labels;
    use proptest::prelude::*;

    use super::*;
    use crate::derived_keys::{KEY_BYTES, Keys, NoteKey};

    const ALL: [&str; 9] = [
        labels::MAY_ACTIVATE,
        labels::MADE_BY,
        labels::MADE_FOR,
        labels::REQUESTED_BY,
        labels::OVERRIDDEN_BY,
        labels::RETRY,
        labels::SET_BY,
        labels::APPROVER_GROUPS,
        labels::SOURCE_GONE,
    ];

    pub(crate) fn note_key(byte: u8) -> NoteKey {
        NoteKey::new(&[byte; KEY_BYTES])
    }

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_content_key_makes_no_note_about_a_user() {
        let Keys { content, note: key } = Keys::of_root(&[1; KEY_BYTES]);
        let of_users = ALL.into_iter().filter(|purpose| *purpose != labels::SOURCE_GONE);
        for purpose in of_users {
            let note = |key: &hmac::Key| sign(key, purpose, &["team", "shop"], "alice", second(0));
            let counts = |note: &str| read(&key.0, purpose, &["team", "shop"], note, Clock::Any).is_some();
            assert!(counts(&note(&key.0)), "{purpose}");
            let derived = ["nudge.dev/notes", purpose].map(|info| sub_key(&content.0, info.as_bytes()));
            for key in derived.iter().chain([&content.0]) {
                assert!(!counts(&note(key)), "{purpose}");
            }
        }
    }

    #[test]
    fn a_note_is_as_old_as_the_object_that_was_created_with_it() {
        let note = sign(&note_key(1).0, labels::APPROVER_GROUPS, &["team"], "[]", second(1_790_000_000));
        let read = |created: Option<i64>| {
            let created = created.map(|at| Time(second(at)));
            let clock = Clock::Creation(created.as_ref());
            super::read(&note_key(1).0, labels::APPROVER_GROUPS, &["team"], &note, clock).is_some()
        };
        for (created, expected) in [(0, true), (300, true), (-300, true), (301, false), (-301, false)] {
            assert_eq!(read(Some(1_790_000_000 + created)), expected, "{created}");
        }
        assert!(!read(None), "it is not stored");
    }

    #[test]
    fn a_note_without_a_value_has_two_words() {
        let note =
            sign(&note_key(1).0, labels::MAY_ACTIVATE, &[""; 0], "", Timestamp::new(1_790_000_000, 999).unwrap());
        assert!(note.starts_with("2026-09-21T14:13:20Z ") && note.split(' ').count() == 2, "{note}");
        let expected = Note { time: second(1_790_000_000), value: String::new() };
        assert_eq!(read(&note_key(1).0, labels::MAY_ACTIVATE, &[""; 0], &note, Clock::Any), Some(expected));
    }

    fn texts() -> impl Strategy<Value = Vec<String>> {
        // Short, of few letters: likely to be equal when they are joined.
        prop::collection::vec("[ab\\x00]{0,3}", 0..5)
    }

    proptest! {
        #[test]
        fn no_two_notes_have_the_same_bytes(one in texts(), two in texts()) {
            let bytes = |texts: &[String]| match texts {
                [time, value, about @ ..] => message(time, value, &about.iter().map(String::as_str).collect::<Vec<_>>()),
                _ => Vec::new(),
            };
            prop_assume!(one.len() > 1 && two.len() > 1);
            prop_assert_eq!(bytes(&one) == bytes(&two), one == two);
        }

        #[test]
        fn a_note_holds_for_its_purpose_object_value_and_time_alone(
            (at, other_at) in (0_i64..4_000_000_000, 0_i64..4_000_000_000),
            (value, other_value) in ("\\PC{0,20}", "\\PC{0,20}"),
            (about, other_about) in (texts(), texts()),
        ) {
            let key = note_key(1).0;
            let [about, other_about] = [&about, &other_about].map(|words| words.iter().map(String::as_str).collect::<Vec<_>>());
            for purpose in ALL {
                let note = sign(&key, purpose, &about, &value, second(at));
                let read = |purpose: &str, about: &[&str], note: &str| super::read(&key, purpose, about, note, Clock::Any);
                prop_assert_eq!(read(purpose, &about, &note), Some(Note { time: second(at), value: value.clone() }));
                for other in ALL {
                    prop_assert_eq!(read(other, &about, &note).is_some(), other == purpose);
                }
                prop_assert_eq!(read(purpose, &other_about, &note).is_some(), other_about == about);
                prop_assert_eq!(super::read(&note_key(2).0, purpose, &about, &note, Clock::Any), None);
                let tag = note.split(' ').nth(1).unwrap();
                let tampered = [
                    (format!("{} {tag} {value}", second(other_at)), other_at == at),
                    (format!("{} {tag} {other_value}", second(at)), other_value == value),
                ];
                for (tampered, is_same) in tampered {
                    prop_assert_eq!(read(purpose, &about, &tampered).is_some(), is_same, "{}", tampered);
                }
            }
        }

        #[test]
        fn nothing_that_a_user_writes_counts(tag in "\\PC{0,60}", value in "\\PC{0,20}", at in 0_i64..4_000_000_000) {
            for note in [tag.clone(), format!("{} {} {value}", second(at), STANDARD.encode(&tag))] {
                for purpose in ALL {
                    prop_assert_eq!(read(&note_key(1).0, purpose, &["team"], &note, Clock::Any), None);
                }
            }
        }
    }
}
