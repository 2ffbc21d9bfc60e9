//! The config that a part was created for, as admission saw it: a [note](crate::signed_notes) about the part's place,
//! with the identity of the config that existed then.
//!
//! If a leader finds the part but no config, the note shows that the config is gone, not still to come. Then the
//! controller deletes the part. So the note must be as old as the part: a part that was restored from a backup has no
//! note that counts.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use nudge_api::PartKind;
use nudge_protocol::labels;

use super::mark::PartPlace;
use crate::derived_keys::NoteKey;
use crate::identity::Identity;
use crate::signed_notes::{self, Clock};

/// Returns the note that the part is created now for the config with this identity. `None` if the part has no name yet.
pub fn made_for(
    key: &NoteKey,
    created_in: PartPlace<'_>,
    part: &ObjectMeta,
    identity: Identity,
    now: Timestamp,
) -> Option<String> {
    let subject = place(created_in, part)?;
    Some(signed_notes::sign(&key.0, labels::MADE_FOR, &subject, &identity.to_string(), now))
}

/// Returns when the part was created, by the clock of the API server, if that was for a config.
pub fn made_for_a_config(key: &NoteKey, kind: PartKind, part: &ObjectMeta) -> Option<Timestamp> {
    let note = part.annotations.as_ref()?.get(labels::MADE_FOR)?;
    let subject = place(PartPlace { kind, namespace: part.namespace.as_deref()? }, part)?;
    let clock = Clock::Creation(part.creation_timestamp.as_ref());
    signed_notes::read(&key.0, labels::MADE_FOR, &subject, note, clock)?;
    part.creation_timestamp.as_ref().map(|created| created.0)
}

fn place(PartPlace { kind, namespace }: PartPlace<'_>, part: &ObjectMeta) -> Option<[String; 5]> {
    let name = part.name.clone().filter(|name| !name.is_empty())?;
    let labels = part.labels.as_ref()?;
    let (config, version) = (labels.get(labels::CONFIG)?, labels.get(labels::VERSION)?);
    Some([namespace.to_owned(), kind.to_string(), name, config.clone(), version.clone()])
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::signed_notes::MAX_SKEW_SECONDS;
    use crate::signed_notes::tests::note_key;

    const CREATED: i64 = 1_790_000_000;

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn part() -> ObjectMeta {
        let labels = [(labels::CONFIG, "shop"), (labels::VERSION, "2")].map(|(key, value)| (key.into(), value.into()));
        ObjectMeta {
            name: Some("shop-2".to_owned()),
            namespace: Some("team".to_owned()),
            labels: Some(labels.into()),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn a_note_holds_for_the_part_that_was_created_with_it_and_no_other() {
        let key = note_key(1);
        let of = PartPlace { kind: PartKind::Secret, namespace: "team" };
        let note = made_for(&key, of, &part(), Identity::of_uid("u"), second(CREATED)).unwrap();
        let read = |change: fn(&mut ObjectMeta), created: i64, key: &NoteKey, kind: PartKind| {
            let mut part = part();
            part.annotations = Some([(labels::MADE_FOR.to_owned(), note.clone())].into());
            part.creation_timestamp = Some(Time(second(created)));
            change(&mut part);
            made_for_a_config(key, kind, &part)
        };
        assert_eq!(read(|_| {}, CREATED + 1, &key, PartKind::Secret), Some(second(CREATED + 1)));
        assert_eq!(
            read(|_| {}, CREATED + MAX_SKEW_SECONDS.cast_signed() + 1, &key, PartKind::Secret),
            None,
            "restored later"
        );
        assert_eq!(read(|_| {}, CREATED, &note_key(2), PartKind::Secret), None);
        assert_eq!(read(|_| {}, CREATED, &key, PartKind::ConfigMap), None);
        let changes: [fn(&mut ObjectMeta); 6] = [
            |part| part.name = Some("shop-3".to_owned()),
            |part| part.namespace = Some("evil".to_owned()),
            |part| drop(part.labels.as_mut().unwrap().insert(labels::CONFIG.to_owned(), "news".to_owned())),
            |part| drop(part.labels.as_mut().unwrap().insert(labels::VERSION.to_owned(), "3".to_owned())),
            |part| part.labels = None,
            |part| part.creation_timestamp = None,
        ];
        assert!(changes.into_iter().all(|change| read(change, CREATED, &key, PartKind::Secret).is_none()));
    }

    #[test]
    fn a_part_without_a_name_gets_no_note() {
        let nameless = ObjectMeta { name: None, generate_name: Some("shop-".to_owned()), ..part() };
        let place = PartPlace { kind: PartKind::ConfigMap, namespace: "team" };
        assert_eq!(made_for(&note_key(1), place, &nameless, Identity::of_uid("u"), second(CREATED)), None);
    }
}
