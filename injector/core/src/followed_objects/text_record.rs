//! The record of a text in the status: the version that it is, and the condition `Fetched`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{
    ConditionType, Explanation, Reason, TextStatus, VersionedConfig, VersionedConfigStatus, condition, find_condition,
    set_condition,
};

use super::direct_readers::forget_readers;
use super::text_writes::TextWrites;
use crate::event_record::EventRecord;

/// Returns the status that records the version of the text and who wrote it, or why there is none, with the Event of a
/// change. Without a text, the version of the last text stays.
pub fn record_text(
    config: &VersionedConfig,
    text: Result<(&str, &TextWrites), &Explanation>,
    now: &Time,
) -> (VersionedConfigStatus, Option<EventRecord>) {
    let mut status = config.status.clone().unwrap_or_default();
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let mut event = None;
    let explanation = match text {
        Ok((version, writes)) => {
            let before = status.internal.text.as_ref();
            let explanation = Reason::TextRead.explained(format!("the text of config {name} is version {version}"));
            if before.is_none_or(|before| before.version != version) {
                event = Some(EventRecord::new(explanation.reason, explanation.message.as_str()));
                let (managers, write_time) = (writes.managers_since(before), writes.last_time(now.0));
                let (version, settle_time) = (version.to_owned(), now.clone());
                status.internal.text = Some(TextStatus { version, settle_time, managers, write_time });
            }
            explanation
        }
        Err(explanation) => {
            let known = find_condition(&status.conditions, ConditionType::Fetched);
            let is_known = known.is_some_and(|known| known.reason == explanation.reason.as_str());
            if explanation.reason.facts().needs_action && !is_known {
                event = Some(EventRecord::new(explanation.reason, explanation.message.as_str()));
            }
            explanation.clone()
        }
    };
    let generation = config.metadata.generation;
    set_condition(
        &mut status.conditions,
        condition(ConditionType::Fetched, text.is_ok(), explanation.reason, explanation.message, generation, now),
    );
    (status, event)
}

/// Removes the record, because pods should not get the text any more.
pub fn forget_text(status: &mut VersionedConfigStatus) {
    status.internal.text = None;
    status.internal.written_back = Vec::new();
    forget_readers(status);
    status.conditions.retain(|condition| condition.type_ != ConditionType::Fetched.as_str());
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::jiff::Timestamp;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn the_record_changes_with_the_version_alone() {
        let mut config = VersionedConfig::new("shop", nudge_api::VersionedConfigSpec::default());
        let writes = TextWrites::default();
        let mut record = |text: Result<&str, &Explanation>, second| {
            let text = text.map(|version| (version, &writes));
            let (status, event) = record_text(&config, text, &at(second));
            config.status = Some(status.clone());
            let fetched = find_condition(&status.conditions, ConditionType::Fetched).unwrap().status.clone();
            (status.internal.text.map(|text| (text.version, text.settle_time)), fetched, event.is_some())
        };
        let is = |version: &str, second| Some((version.to_owned(), at(second)));
        let missing = Reason::NoText.explained("m");
        assert_eq!(record(Err(&missing), 0), (None, "False".to_owned(), true));
        assert_eq!(record(Err(&missing), 1), (None, "False".to_owned(), false));
        assert_eq!(record(Ok("1"), 2), (is("1", 2), "True".to_owned(), true));
        assert_eq!(record(Ok("1"), 3), (is("1", 2), "True".to_owned(), false));
        assert_eq!(record(Err(&missing), 4), (is("1", 2), "False".to_owned(), true), "no text is no wish");
        assert_eq!(record(Ok("2"), 5), (is("2", 5), "True".to_owned(), true));
        let mut status = config.status.unwrap();
        forget_text(&mut status);
        assert_eq!((status.internal.text, status.conditions.len()), (None, 0));
    }
}
