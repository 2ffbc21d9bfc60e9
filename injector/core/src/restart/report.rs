//! How the restarted workloads are told of: the condition `Restarted`, and an Event when something is new in it. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{ConditionType, VersionedConfigStatus, clipped, condition, set_condition};

use super::next::Report;
use crate::versions::Note;

/// What was found about the workloads that take a version by a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartReport {
    /// The version that they are to have.
    pub version: String,
    /// How many workloads use it.
    pub workloads: usize,
    /// All that is to be restarted was.
    pub done: bool,
    /// What can't be restarted or is not waited for.
    pub reports: Vec<Report>,
}

/// Writes the condition. Returns what is worth an Event.
pub fn tell(
    status: &mut VersionedConfigStatus,
    found: &RestartReport,
    generation: Option<i64>,
    now: &Time,
) -> Option<Note> {
    let kind = ConditionType::Restarted;
    let version = &found.version;
    let Some(first) = found.reports.first() else {
        if found.workloads == 0 {
            status.conditions.retain(|condition| condition.type_ != kind.as_str());
        } else if found.done {
            let message =
                format!("{} workloads that take a version by a restart have version {version}", found.workloads);
            set_condition(&mut status.conditions, condition(kind, true, "Restarted", message, generation, now));
        } else {
            let message = format!("workloads that take a version by a restart are restarted with version {version}");
            set_condition(&mut status.conditions, condition(kind, false, "Restarting", message, generation, now));
        }
        return None;
    };
    let messages: Vec<&str> = found.reports.iter().map(|report| report.message.as_str()).collect();
    let message = clipped(format!("version {version}: {}", messages.join("; ")));
    let known = status.conditions.iter().any(|old| old.type_ == kind.as_str() && old.message == message);
    let same = found.reports.iter().all(|report| report.word == first.word);
    let word = if same { first.word } else { "Several" };
    set_condition(&mut status.conditions, condition(kind, false, word, message.clone(), generation, now));
    (!known).then_some(Note { warning: true, reason: "NotRestarted", message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_once_and_taken_back_when_all_is_well() {
        let now = Time(k8s_openapi::jiff::Timestamp::from_second(1).unwrap());
        let mut status = VersionedConfigStatus::default();
        let report = Report::new("Paused", "Deployment/web", "Deployment/web is paused".to_owned());
        let mut found = RestartReport { version: "2".to_owned(), workloads: 1, done: true, reports: vec![report] };
        let note = tell(&mut status, &found, Some(1), &now).unwrap();
        assert_eq!(note.message, "version 2: Deployment/web is paused");
        assert_eq!(tell(&mut status, &found, Some(1), &now), None);
        assert_eq!((status.conditions[0].status.as_str(), status.conditions[0].reason.as_str()), ("False", "Paused"));
        found.reports.clear();
        assert_eq!(tell(&mut status, &found, Some(1), &now), None);
        assert_eq!(status.conditions[0].status, "True");
        found.workloads = 0;
        tell(&mut status, &found, Some(1), &now);
        assert!(status.conditions.is_empty());
    }
}
