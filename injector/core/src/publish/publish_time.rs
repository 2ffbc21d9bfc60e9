//! The time when a published object was written, by the clock of the API server. Pods' creation times use the same
//! clock, and both times together decide which pods have the old content.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::publication::has_data;

/// The precision of times of the API server.
const SERVER_TIME_PRECISION: SignedDuration = SignedDuration::from_secs(1);

/// The metadata that show when a published object was written.
#[derive(Clone, Copy, Debug)]
pub enum WriteRecord<'a> {
    /// The object is the API server's answer to the write.
    Answer(&'a ObjectMeta),
    /// The object was there already: a write was not recorded, or somebody else has written it.
    Stored(&'a ObjectMeta),
}

/// Returns a time when `writer` has surely written the object, at most a second after the write: the API server cuts
/// times to seconds, and a pod of the same second may be older. If the API server gives no time, the result follows
/// from `now`, by the clock of the leader. Users may write anything into a stored object, so a time in the future
/// counts only in the answer to a write.
pub fn publish_time(record: Option<WriteRecord<'_>>, writer: &str, now: Timestamp) -> Timestamp {
    let time = match record {
        Some(WriteRecord::Answer(meta)) => write_time(meta, writer).unwrap_or(now),
        Some(WriteRecord::Stored(meta)) => write_time(meta, writer).map_or(now, |time| time.min(now)),
        None => now,
    };
    time.saturating_add(SERVER_TIME_PRECISION).unwrap_or(time)
}

/// Returns the time from which every reader of a text has it: when its data was last written, by any manager. Without
/// that time, the result follows from `now`.
pub fn text_time(meta: &ObjectMeta, now: Timestamp) -> Timestamp {
    let entries = meta.managed_fields.iter().flatten().filter(|entry| has_data(entry));
    let written = entries.filter_map(|entry| Some(entry.time.as_ref()?.0)).max();
    let at = written.map_or(now, |at| at.min(now));
    at.saturating_add(SERVER_TIME_PRECISION).unwrap_or(at)
}

fn write_time(meta: &ObjectMeta, writer: &str) -> Option<Timestamp> {
    let entries = meta.managed_fields.iter().flatten().filter(|entry| entry.manager.as_deref() == Some(writer));
    entries.filter_map(|entry| Some(entry.time.as_ref()?.0)).max()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, Time};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn meta(entries: &[(&str, Option<i64>)]) -> ObjectMeta {
        let entry = |(manager, second): &(&str, Option<i64>)| ManagedFieldsEntry {
            manager: Some((*manager).to_owned()),
            time: second.map(|second| Time(at(second))),
            ..ManagedFieldsEntry::default()
        };
        ObjectMeta { managed_fields: Some(entries.iter().map(entry).collect()), ..ObjectMeta::default() }
    }

    #[test]
    fn the_clock_of_the_leader_does_not_matter_where_the_api_server_says_when() {
        let written = meta(&[("kubectl", Some(990)), ("us", Some(900)), ("us", Some(1000)), ("us", None)]);
        for leader in [1, 1000, 9000].map(at) {
            assert_eq!(publish_time(Some(WriteRecord::Answer(&written)), "us", leader), at(1001));
        }
        let found = |leader| publish_time(Some(WriteRecord::Stored(&written)), "us", at(leader));
        assert_eq!((found(9000), found(950)), (at(1001), at(951)), "a time to come may be anybody's");
    }

    #[test]
    fn a_text_is_as_old_as_its_data() {
        let mut text = meta(&[("kubectl-edit", Some(990)), ("us", Some(1000))]);
        assert_eq!(text_time(&text, at(2000)), at(2001), "nobody is known to have written it");
        let entries = text.managed_fields.as_mut().unwrap();
        entries[0].fields_v1 = Some(FieldsV1(serde_json::json!({"f:data": {"f:mode": {}}})));
        entries[1].fields_v1 = Some(FieldsV1(serde_json::json!({"f:metadata": {"f:labels": {}}})));
        assert_eq!((text_time(&text, at(2000)), text_time(&text, at(900))), (at(991), at(901)));
    }

    #[test]
    fn without_a_word_of_the_api_server_it_is_now() {
        for meta in [ObjectMeta::default(), meta(&[("kubectl", Some(990))]), meta(&[("us", None)])] {
            for record in [None, Some(WriteRecord::Answer(&meta)), Some(WriteRecord::Stored(&meta))] {
                assert_eq!(publish_time(record, "us", at(1000)), at(1001), "{record:?}");
            }
        }
    }
}
