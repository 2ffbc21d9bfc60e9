//! The reports about restarts: why an object is left out, and the condition `Restarted` of a config with its Event.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{
    ConditionType, Explanation, Reason, VersionedConfigStatus, clipped, condition, find_condition, set_condition,
};
use nudge_protocol::plural::{agreeing, counted};

use crate::event_record::EventRecord;
use crate::owners::WorkloadId;

/// The reason why one object is not restarted, or not waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectReport {
    /// The object; `None` for several objects.
    pub object: Option<WorkloadId>,
    /// The reason, with a message that names the object.
    pub why: Explanation,
}

impl ObjectReport {
    /// Returns a report about `object`.
    pub fn new(reason: Reason, object: &WorkloadId, message: impl Into<String>) -> Self {
        Self { object: Some(object.clone()), why: reason.explained(message) }
    }

    /// Returns a report that names its objects in its message.
    pub fn about_several(reason: Reason, message: impl Into<String>) -> Self {
        Self { object: None, why: reason.explained(message) }
    }

    /// Returns the sort key of the report. In a fixed order, reports always give the same condition.
    pub(super) fn sort_key(&self) -> (&'static str, &str, Option<&WorkloadId>) {
        (self.why.reason.as_str(), &self.why.message, self.object.as_ref())
    }

    pub(super) fn undone(id: &WorkloadId) -> Self {
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
    /// Whether all workloads that use the config are restarted.
    pub done: bool,
    /// The reports about workloads that can't be restarted or are not waited for.
    pub reports: Vec<ObjectReport>,
}

/// Writes the condition `Restarted`, and returns an Event if the message is new.
pub fn write_restart_condition(
    status: &mut VersionedConfigStatus,
    report: &RestartReport,
    generation: Option<i64>,
    now: &Time,
) -> Option<EventRecord> {
    let kind = ConditionType::Restarted;
    let version = &report.version;
    let Some(first) = report.reports.first() else {
        if report.workloads == 0 {
            status.conditions.retain(|condition| condition.type_ != kind.as_str());
        } else if report.done {
            let message = format!(
                "{} that {} a version by a restart {} version {version}",
                counted(report.workloads, "workload"),
                agreeing(report.workloads, "takes", "take"),
                agreeing(report.workloads, "has", "have")
            );
            set_condition(&mut status.conditions, condition(kind, true, Reason::Restarted, message, generation, now));
        } else {
            let message = format!("workloads that take a version by a restart are restarted with version {version}");
            set_condition(&mut status.conditions, condition(kind, false, Reason::Restarting, message, generation, now));
        }
        return None;
    };
    let messages: Vec<&str> = report.reports.iter().map(|object| object.why.message.as_str()).collect();
    let message = clipped(format!("version {version}: {}", messages.join("; ")));
    let is_known = find_condition(&status.conditions, kind).is_some_and(|old| old.message == message);
    let same = report.reports.iter().all(|object| object.why.reason == first.why.reason);
    let reason = if same { first.why.reason } else { Reason::Several };
    set_condition(&mut status.conditions, condition(kind, false, reason, message.clone(), generation, now));
    (!is_known).then(|| EventRecord::new(Reason::NotRestarted, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_written_once_and_the_condition_follows() {
        let now = Time(k8s_openapi::jiff::Timestamp::from_second(1).unwrap());
        let mut status = VersionedConfigStatus::default();
        let report = ObjectReport::new(Reason::Paused, &"Deployment/web".into(), "Deployment/web is paused");
        let mut found = RestartReport { version: "2".to_owned(), workloads: 1, done: true, reports: vec![report] };
        let note = write_restart_condition(&mut status, &found, Some(1), &now).unwrap();
        assert_eq!(note.explanation.message, "version 2: Deployment/web is paused");
        assert_eq!(write_restart_condition(&mut status, &found, Some(1), &now), None);
        assert_eq!((status.conditions[0].status.as_str(), status.conditions[0].reason.as_str()), ("False", "Paused"));
        found.reports.clear();
        assert_eq!(write_restart_condition(&mut status, &found, Some(1), &now), None);
        assert_eq!(status.conditions[0].status, "True");
        found.workloads = 0;
        write_restart_condition(&mut status, &found, Some(1), &now);
        assert!(status.conditions.is_empty());
    }
}
