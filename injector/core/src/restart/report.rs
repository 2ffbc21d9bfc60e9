//! The reports about restarts: why an object is left out, the condition `Restarted` of a config, and the Event about a change of it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{
    ConditionType, Explanation, Reason, VersionedConfigStatus, clipped, condition, find_condition, set_condition,
};

use crate::event_record::EventRecord;

/// The reason why one object is not restarted, or not waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Kind and name of the object, such as `Deployment/web`; empty for several.
    pub object: String,
    /// The reason, with a message that names the object.
    pub why: Explanation,
}

impl Report {
    /// Returns a report about `object`.
    pub fn new(reason: Reason, object: &str, message: impl Into<String>) -> Self {
        Self { object: object.to_owned(), why: reason.explained(message) }
    }

    /// Returns the key by which reports are sorted: in a fixed order they give the same condition at each look.
    pub(super) fn sort_key(&self) -> (&'static str, &str, &str) {
        (self.why.reason.as_str(), &self.why.message, &self.object)
    }

    pub(super) fn undone(id: &str) -> Self {
        Self::new(Reason::Undone, id, format!("somebody has undone the restart of {id}; restart it yourself"))
    }
}

/// The progress of the workloads that take a version by a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartReport {
    /// The version that the workloads take.
    pub version: String,
    /// The number of workloads that use the config.
    pub workloads: usize,
    /// Whether all of these workloads are restarted.
    pub done: bool,
    /// The reports about workloads that can't be restarted or are not waited for.
    pub reports: Vec<Report>,
}

/// Writes the condition. Returns an Event where its message is new.
pub fn write_condition(
    status: &mut VersionedConfigStatus,
    found: &RestartReport,
    generation: Option<i64>,
    now: &Time,
) -> Option<EventRecord> {
    let kind = ConditionType::Restarted;
    let version = &found.version;
    let Some(first) = found.reports.first() else {
        if found.workloads == 0 {
            status.conditions.retain(|condition| condition.type_ != kind.as_str());
        } else if found.done {
            let message =
                format!("{} workloads that take a version by a restart have version {version}", found.workloads);
            set_condition(&mut status.conditions, condition(kind, true, Reason::Restarted, message, generation, now));
        } else {
            let message = format!("workloads that take a version by a restart are restarted with version {version}");
            set_condition(&mut status.conditions, condition(kind, false, Reason::Restarting, message, generation, now));
        }
        return None;
    };
    let messages: Vec<&str> = found.reports.iter().map(|report| report.why.message.as_str()).collect();
    let message = clipped(format!("version {version}: {}", messages.join("; ")));
    let known = find_condition(&status.conditions, kind).is_some_and(|old| old.message == message);
    let same = found.reports.iter().all(|report| report.why.reason == first.why.reason);
    let reason = if same { first.why.reason } else { Reason::Several };
    set_condition(&mut status.conditions, condition(kind, false, reason, message.clone(), generation, now));
    (!known).then(|| EventRecord::new(Reason::NotRestarted, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_written_once_and_the_condition_follows() {
        let now = Time(k8s_openapi::jiff::Timestamp::from_second(1).unwrap());
        let mut status = VersionedConfigStatus::default();
        let report = Report::new(Reason::Paused, "Deployment/web", "Deployment/web is paused");
        let mut found = RestartReport { version: "2".to_owned(), workloads: 1, done: true, reports: vec![report] };
        let note = write_condition(&mut status, &found, Some(1), &now).unwrap();
        assert_eq!(note.explanation.message, "version 2: Deployment/web is paused");
        assert_eq!(write_condition(&mut status, &found, Some(1), &now), None);
        assert_eq!((status.conditions[0].status.as_str(), status.conditions[0].reason.as_str()), ("False", "Paused"));
        found.reports.clear();
        assert_eq!(write_condition(&mut status, &found, Some(1), &now), None);
        assert_eq!(status.conditions[0].status, "True");
        found.workloads = 0;
        write_condition(&mut status, &found, Some(1), &now);
        assert!(status.conditions.is_empty());
    }
}
