//! The choice of the next workload to restart, or of the workload that the rollout waits for. Workloads hold the state,
//! so a new leader continues the work of the last leader.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use nudge_api::Reason;

use super::annotations::{ContentDigest, HealthBefore, RestartMark};
use super::elapsed::has_elapsed;
use super::object_report::ObjectReport;
use super::restart_attempts::RestartAttempts;
use super::workload::{ReplicaCounts, TargetedWorkload, Workload, WorkloadProgress};
use crate::owners::WorkloadId;

/// The maximum number of restarts of a container in a new pod. With more, the pod counts as one that does not come up.
const MAX_CONTAINER_RESTARTS: i32 = 1;

/// The message if further restarts wait for a decision about the version.
pub const UNDECIDED_MESSAGE: &str = "no further workload is restarted until it is clear whether the version harms pods";

/// The workloads of one config at one moment, and the other facts that the decision needs.
#[derive(Clone, Debug)]
pub struct RestartSituation<'a> {
    /// The workloads that use the config.
    pub workloads: &'a [TargetedWorkload],
    /// The number of pods with an agent that run another version, by workload.
    pub behind: &'a BTreeMap<WorkloadId, usize>,
    /// Whether the rollout leaves a published version: only workloads that were restarted with it are restarted again.
    pub is_return: bool,
    /// Whether no further workload may be restarted, because pods were harmed and the cause is unknown.
    pub is_undecided: bool,
    /// The time when the stage began: earlier restarts say nothing about the version.
    pub since: Timestamp,
    /// The deadline in seconds of a workload without its own, from its last progress.
    pub deadline_seconds: u32,
    /// The time in seconds that an unprobed workload must stay up before it counts as up.
    pub settle_seconds: u32,
    /// The leader's memory of its restarts in this part of the rollout.
    pub attempts: &'a RestartAttempts,
    /// The present time.
    pub now: Timestamp,
}

/// The decision about the workloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextRestart {
    /// All workloads are restarted and healthy.
    Done,
    /// The digest must be written into this workload's template.
    Restart {
        /// The index of the workload in the list.
        index: usize,
        /// The annotation to write with the digest.
        mark: RestartMark,
    },
    /// Nothing is written before a restart ends.
    Wait(String),
    /// A workload did not become ready with the version.
    Failed(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RestartProgress {
    Complete,
    Moving,
    Late,
}

fn restarting_message(id: &WorkloadId) -> String {
    format!("{id} is being restarted")
}

fn late_message(id: &WorkloadId) -> String {
    format!("{id} did not come up after its restart")
}

/// Returns the progress of the restart with this mark. Once the workload has come up, the restart is not to blame for
/// anything later.
fn restart_progress(situation: &RestartSituation<'_>, workload: &Workload, mark: &RestartMark) -> RestartProgress {
    let watched = situation.attempts.watched_restart(workload, mark);
    if watched.is_some_and(|watched| watched.settled) {
        return RestartProgress::Complete;
    }
    let progressed = watched.map_or(mark.at, |watched| watched.progressed_at.max(mark.at));
    let settle_seconds = workload.settle_seconds(situation.settle_seconds);
    let in_time = !has_elapsed(progressed, situation.deadline_seconds.saturating_add(settle_seconds), situation.now);
    // If some pods were not available before, the same pods may crash now.
    let has_one_pod = workload.replicas.is_some_and(|replicas| replicas.total <= 1);
    let crashes = settle_seconds > 0
        && mark.before.available().is_none()
        && watched.is_some_and(|watched| watched.restarts(has_one_pod) > MAX_CONTAINER_RESTARTS);
    // A controller that has reported the end of its rollout never reports that the rollout takes too long.
    let reports_failure = workload.has_deadline && workload.progress == WorkloadProgress::Moving;
    // On the way back, the Deployment's condition describes the version that is left until the Deployment progresses.
    let may_come_up = match workload.progress_since(mark) {
        WorkloadProgress::Complete | WorkloadProgress::Ended if settle_seconds == 0 => {
            return RestartProgress::Complete;
        }
        // Without a probe, the controller calls a pod available once its containers were started.
        WorkloadProgress::Complete | WorkloadProgress::Ended => in_time && !crashes,
        WorkloadProgress::Failed => situation.is_return && in_time,
        WorkloadProgress::Moving => (in_time || (reports_failure && !situation.is_return)) && !crashes,
    };
    if may_come_up { RestartProgress::Moving } else { RestartProgress::Late }
}

/// Returns a report if somebody has removed the digest that a restart of this part wrote, and maybe its mark.
fn undo_report(
    situation: &RestartSituation<'_>,
    workload: &Workload,
    current_mark: Option<&RestartMark>,
    digest: &ContentDigest,
) -> Option<ObjectReport> {
    match current_mark {
        Some(mark) if mark.digest == *digest => Some(ObjectReport::undone(&workload.id())),
        // The workload was restarted again for another of its configs.
        Some(mark) if workload.digest.as_ref() == Some(&mark.digest) => None,
        _ => situation.attempts.was_restarted(workload, digest).then(|| ObjectReport::undone(&workload.id())),
    }
}

/// Returns the progress of an earlier restart for another of the workload's configs. A second restart before its end
/// would hide whether the first one failed.
fn earlier_restart(situation: &RestartSituation<'_>, workload: &Workload) -> Option<RestartProgress> {
    let mark = workload.mark()?;
    // On the way back nothing waits. Also, nothing waits for a workload with an update block, or one that was
    // unhealthy.
    if situation.is_return || mark.before == HealthBefore::Unwell || workload.update_block.is_some() {
        return None;
    }
    if mark.at >= situation.since {
        return match restart_progress(situation, workload, mark) {
            RestartProgress::Complete => None,
            RestartProgress::Late if is_excused(workload, mark) => None,
            progress => Some(progress),
        };
    }
    // The rollout that restarted the workload also judges it, while it progresses.
    let replaces = workload.replicas.is_some_and(|replicas| replicas.outdated() > 0);
    let watched = situation.attempts.watched_restart(workload, mark).filter(|_| replaces);
    let progressed = watched.map_or(mark.at, |watched| watched.progressed_at.max(mark.at));
    let is_waiting = !workload.is_well() && !has_elapsed(progressed, situation.deadline_seconds, situation.now);
    is_waiting.then_some(RestartProgress::Moving)
}

/// Returns whether a late restart says nothing about the version.
fn is_excused(workload: &Workload, mark: &RestartMark) -> bool {
    workload.has_changed_template() || mark.before.available().is_some_and(|before| workload.has_available(before))
}

/// Returns the health of the workload before its restart, for the mark.
fn health_before(situation: &RestartSituation<'_>, workload: &Workload) -> HealthBefore {
    // The version that pods leave may have made the workload unhealthy; the earlier mark has the health before that
    // version.
    if situation.is_return {
        return workload.last_mark.as_ref().map(|mark| mark.before).unwrap_or_default();
    }
    match workload.replicas.and_then(ReplicaCounts::available_if_updated) {
        _ if workload.is_well() => HealthBefore::Well,
        Some(available) if available > 0 => HealthBefore::Available(available),
        _ => HealthBefore::Unwell,
    }
}

/// Decides which workload is restarted next. Returns the decision, and reports about workloads that can't be restarted.
pub fn next_restart(situation: &RestartSituation<'_>) -> (NextRestart, Vec<ObjectReport>) {
    let mut reports = Vec::new();
    let mut wait = None;
    let mut failure = None;
    let mut open = Vec::new();
    for (index, TargetedWorkload { workload, digest, .. }) in situation.workloads.iter().enumerate() {
        let id = workload.id();
        if let Some(report) = situation.attempts.refusal(workload) {
            reports.push(report.clone());
            continue;
        }
        let current_mark = workload.last_mark.as_ref().filter(|mark| mark.at >= situation.since);
        if workload.digest.as_ref() != Some(digest) {
            let keeps_template =
                situation.is_return && workload.digest.is_none() && !situation.behind.contains_key(&id);
            if let Some(report) = workload.owned_report().filter(|_| !keeps_template) {
                reports.push(report);
            } else if let Some(report) = undo_report(situation, workload, current_mark, digest) {
                reports.push(report);
            } else if !keeps_template {
                match earlier_restart(situation, workload) {
                    None => open.push((workload.update_block.is_some() || !workload.is_well(), index)),
                    Some(RestartProgress::Late) => _ = failure.get_or_insert(late_message(&id)),
                    Some(_) => _ = wait.get_or_insert(restarting_message(&id)),
                }
            }
            continue;
        }
        let Some(mark) = current_mark else { continue };
        if let Some(block) = workload.update_block {
            reports.push(block.report(&id));
            continue;
        }
        match restart_progress(situation, workload, mark) {
            RestartProgress::Complete => {}
            _ if mark.before == HealthBefore::Unwell => {
                let message = format!("{id} was not healthy before its restart, so Nudge did not wait for it");
                reports.push(ObjectReport::new(Reason::Unwell, &id, message));
            }
            RestartProgress::Moving => _ = wait.get_or_insert(restarting_message(&id)),
            RestartProgress::Late if workload.has_changed_template() => {
                let message = format!(
                    "{id} did not come up, but somebody has changed its template since its restart, so this says nothing \
                     about the version"
                );
                reports.push(ObjectReport::new(Reason::TemplateChanged, &id, message));
            }
            RestartProgress::Late if situation.is_return => {
                let hint = "see its pods, and delete one that keeps a StatefulSet from replacing it";
                reports.push(ObjectReport::new(Reason::NotBack, &id, format!("{}: {hint}", late_message(&id))));
            }
            RestartProgress::Late if is_excused(workload, mark) => {
                let message = format!(
                    "{id} did not come up after its restart, but has no fewer pods available than before, so this says \
                     nothing about the version"
                );
                reports.push(ObjectReport::new(Reason::Unwell, &id, message));
            }
            RestartProgress::Late => _ = failure.get_or_insert(late_message(&id)),
        }
    }
    reports.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
    if let Some(message) = failure {
        return (NextRestart::Failed(message), reports);
    }
    // Workloads are restarted one after another only on the way forward: on the way back no workload waits for the
    // health of the previous workload.
    if let Some(message) = wait.filter(|_| !situation.is_return || open.is_empty()) {
        return (NextRestart::Wait(message), reports);
    }
    if situation.is_undecided && !open.is_empty() {
        return (NextRestart::Wait(UNDECIDED_MESSAGE.to_owned()), reports);
    }
    // Well workloads come first, because they prove something; the rest may recover meanwhile.
    let next = open.into_iter().min().map(|(_, index)| {
        let TargetedWorkload { workload, digest, whole } = &situation.workloads[index];
        // Clocks of leaders differ, and a mark must not be older than the stage.
        let restart_time = situation.now.max(situation.since);
        let (digest, whole, template) = (digest.clone(), whole.clone(), workload.template.clone());
        let before = health_before(situation, workload);
        NextRestart::Restart { index, mark: RestartMark { at: restart_time, digest, whole, template, before } }
    });
    (next.unwrap_or(NextRestart::Done), reports)
}
