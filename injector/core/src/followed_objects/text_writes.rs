//! The field managers that wrote a text: who edited it, as far as the objects show. Every client names its manager as
//! it likes, so a manager is never an author.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use nudge_api::TextStatus;
use nudge_protocol::bounded_text::one_line;

use crate::publish::{MAX_MANAGER_BYTES, has_data};

/// The maximum number of managers that are named.
const MAX_MANAGERS: usize = 3;

/// The last write of each field manager that keys of a text belong to. A manager that only removes keys leaves no
/// trace, and API servers before Kubernetes 1.22 may note no time when a manager changes its own keys again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextWrites(Vec<(Timestamp, String)>);

impl TextWrites {
    /// Adds the writes of one object of the text.
    pub fn add(&mut self, metadata: &ObjectMeta) {
        let entries = metadata.managed_fields.iter().flatten().filter(|entry| has_data(entry));
        self.0.extend(entries.filter_map(|entry| {
            let manager = one_line(entry.manager.as_deref().unwrap_or_default(), MAX_MANAGER_BYTES);
            let time = entry.time.as_ref()?.0;
            (!manager.is_empty()).then_some((time, manager))
        }));
    }

    /// Returns the time of the last write. Users may write any time into an object, so a time in the future does not
    /// count.
    pub(super) fn last_time(&self, now: Timestamp) -> Option<Time> {
        self.0.iter().map(|(time, _)| *time).filter(|time| *time <= now).max().map(Time)
    }

    /// Returns the managers that wrote since the text before, the last one first. If no write since then is known, this
    /// is the last manager.
    pub(super) fn managers_since(&self, before: Option<&TextStatus>) -> Vec<String> {
        let mut writes = self.0.clone();
        writes.sort_unstable_by(|(time, name), (other, other_name)| other.cmp(time).then(name.cmp(other_name)));
        let Some((last, _)) = writes.first() else { return Vec::new() };
        let start = before.and_then(|text| text.write_time.as_ref()).map_or(*last, |write| {
            // Times of the API server are whole seconds.
            Timestamp::from_second(write.0.as_second().saturating_add(1)).unwrap_or(*last).min(*last)
        });
        let mut managers: Vec<String> = Vec::new();
        for (_, manager) in writes.into_iter().filter(|(time, _)| *time >= start) {
            if !managers.contains(&manager) && managers.len() < MAX_MANAGERS {
                managers.push(manager);
            }
        }
        managers
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn entry(manager: &str, second: i64, fields: &Value) -> Value {
        json!({"manager": manager, "operation": "Update", "time": at(second).to_string(), "fieldsV1": fields})
    }

    fn data(manager: &str, second: i64) -> Value {
        entry(manager, second, &json!({"f:data": {"f:key": {}}}))
    }

    fn writes(objects: &[&[Value]]) -> TextWrites {
        let mut writes = TextWrites::default();
        for entries in objects {
            writes.add(&serde_json::from_value(json!({"managedFields": entries})).unwrap());
        }
        writes
    }

    fn text(write_second: Option<i64>) -> TextStatus {
        let write_time = write_second.map(|second| Time(at(second)));
        TextStatus { version: "1".to_owned(), settle_time: Time(at(0)), managers: Vec::new(), write_time }
    }

    #[test]
    fn the_first_text_is_of_the_last_manager_of_its_data() {
        let label = entry("nudge-controller", 30, &json!({"f:metadata": {"f:labels": {}}}));
        let binary = entry("kubectl-edit", 20, &json!({"f:binaryData": {"f:key": {}}}));
        let writes = writes(&[&[data("helm", 10), binary, label]]);
        for before in [None, Some(text(None))] {
            assert_eq!(writes.managers_since(before.as_ref()), ["kubectl-edit"]);
        }
        assert_eq!(writes.last_time(at(100)), Some(Time(at(20))));
    }

    #[test]
    fn of_several_objects_those_that_were_written_since_count() {
        let writes = writes(&[&[data("helm", 10), data("team-b", 30)], &[data("external-secrets", 31)]]);
        let since = |second| writes.managers_since(Some(&text(Some(second))));
        assert_eq!(since(10), ["external-secrets", "team-b"]);
        assert_eq!(since(30), ["external-secrets"]);
        assert_eq!(since(9), ["external-secrets", "team-b", "helm"]);
        assert_eq!(since(31), ["external-secrets"], "nothing shows a later write");
    }

    #[test]
    fn a_manager_is_one_line_of_bounded_length_and_few_are_named() {
        let odd = format!("a\nb\u{202e}{}", "x".repeat(500));
        let named = writes(&[&[data(&odd, 10), data("", 20)]]).managers_since(None);
        assert!(named.len() == 1 && named[0].len() <= MAX_MANAGER_BYTES && named[0].starts_with("a b"), "{named:?}");
        let many: Vec<Value> = (0..9).map(|number| data(&format!("m{number}"), 10)).collect();
        assert_eq!(writes(&[&many, &many]).managers_since(None), ["m0", "m1", "m2"]);
        assert_eq!(writes(&[]).managers_since(None), [""; 0]);
    }

    #[test]
    fn a_time_in_the_future_hides_no_later_writer() {
        let writes = writes(&[&[data("forger", 9_000), data("helm", 10)]]);
        assert_eq!(writes.last_time(at(100)), Some(Time(at(10))));
        assert_eq!(writes.managers_since(Some(&text(Some(10)))), ["forger"]);
    }
}
