//! The workload that is restarted next, or that is waited for. The state is on the workloads, so that a new leader goes on where the last one
//! stopped.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use nudge_api::Reason;

use super::elapsed::has_elapsed;
use super::marks::Restarted;
use super::memory::Memory;
use super::report::Report;
use super::workload::{Progress, Steps, Workload};

/// How often a container of a new pod may be started again before the pod counts as one that does not come up.
const RESTARTS: i32 = 1;

/// The message about what further restarts wait for.
pub const UNDECIDED: &str = "no further workload is restarted until it is clear whether the version harms pods";

/// The workloads of one config at one moment, and what the decision needs besides.
#[derive(Clone, Debug)]
pub struct Look<'a> {
    /// The workloads that use the config, each with the digest that its template should have.
    pub workloads: &'a [(Workload, String)],
    /// How many pods with an agent run another version, by workload id.
    pub behind: &'a BTreeMap<String, usize>,
    /// Whether the rollout leaves a published version: only workloads that were restarted with it are restarted again.
    pub back: bool,
    /// Whether pods were harmed, and nobody knows yet whether the version is the cause: nothing more is restarted.
    pub held: bool,
    /// When the stage began: restarts before it say nothing about the version.
    pub since: Timestamp,
    /// Deadline in seconds of a workload without its own, from its last progress.
    pub deadline: u32,
    /// How long an unprobed workload must stay up before it counts as up, in seconds.
    pub settle: u32,
    /// What this leader remembers of this part of the rollout.
    pub memory: &'a Memory,
    /// The present time.
    pub now: Timestamp,
}

/// The decision about the workloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// All workloads are restarted and well.
    Done,
    /// Write the digest into this workload's template.
    Restart {
        /// The index of the workload in the list.
        index: usize,
        /// The annotation to write with the digest.
        mark: Restarted,
    },
    /// Nothing is to be written before a restart comes to its end.
    Wait(String),
    /// A workload did not become ready with the version.
    Failed(String),
}

/// The progress of a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RestartProgress {
    Complete,
    Moving,
    Late,
}

fn being_restarted(id: &str) -> String {
    format!("{id} is being restarted")
}

fn late_message(id: &str) -> String {
    format!("{id} did not come up after its restart")
}

/// How far the restart of this mark is. Once it has come up, nothing that happens later is its fault.
fn restart_progress(look: &Look<'_>, workload: &Workload, mark: &Restarted) -> RestartProgress {
    let watched = look.memory.watched(workload, mark);
    if watched.is_some_and(|watched| watched.settled) {
        return RestartProgress::Complete;
    }
    let progressed = watched.map_or(mark.at, |watched| watched.progressed.max(mark.at));
    let settle = workload.settle_seconds(look.settle);
    let in_time = !has_elapsed(progressed, look.deadline.saturating_add(settle), look.now);
    // Of pods that were not available before, those that crash now are not known.
    let alone = workload.steps.is_some_and(|steps| steps.all <= 1);
    let crashes = settle > 0 && mark.before.is_none() && watched.is_some_and(|it| it.restarts(alone) > RESTARTS);
    // A controller that says that its rollout has ended does not say any more that it takes too long.
    let theirs = workload.has_deadline && workload.progress == Progress::Moving;
    // On the way back, the Deployment's condition is about the version that is left until the Deployment progresses.
    let patient = match workload.progress_since(mark) {
        Progress::Complete | Progress::Ended if settle == 0 => return RestartProgress::Complete,
        // Its controller calls a pod available whose containers were started, and looks no further.
        Progress::Complete | Progress::Ended => in_time && !crashes,
        Progress::Failed => look.back && in_time,
        Progress::Moving => (in_time || (theirs && !look.back)) && !crashes,
    };
    if patient { RestartProgress::Moving } else { RestartProgress::Late }
}

/// Whether somebody has removed the digest that a restart of this part wrote, and maybe its mark.
fn undone(look: &Look<'_>, workload: &Workload, ours: Option<&Restarted>, digest: &str) -> Option<Report> {
    match ours {
        Some(mark) if mark.digest == digest => Some(Report::undone(&workload.id())),
        // It was restarted again for another of its configs.
        Some(mark) if workload.digest.as_ref() == Some(&mark.digest) => None,
        _ => look.memory.was_restarted(workload, digest).then(|| Report::undone(&workload.id())),
    }
}

/// How far an earlier restart is, for another of the workload's configs. A second restart before its end would hide whether the first one
/// failed.
fn earlier_restart(look: &Look<'_>, workload: &Workload) -> Option<RestartProgress> {
    let mark = workload.mark()?;
    // On the way back nothing waits, and neither does a workload that is held or was unwell.
    if look.back || mark.unwell || workload.hold.is_some() {
        return None;
    }
    if mark.at >= look.since {
        return match restart_progress(look, workload, mark) {
            RestartProgress::Complete => None,
            RestartProgress::Late if is_excused(workload, mark) => None,
            progress => Some(progress),
        };
    }
    // The rollout that restarted it also judges it, while it progresses.
    let replaces = workload.steps.is_some_and(|steps| steps.old() > 0);
    let watched = look.memory.watched(workload, mark).filter(|_| replaces);
    let progressed = watched.map_or(mark.at, |watched| watched.progressed.max(mark.at));
    let waits = !workload.is_well() && !has_elapsed(progressed, look.deadline, look.now);
    waits.then_some(RestartProgress::Moving)
}

/// Returns whether a late restart says nothing about the version.
fn is_excused(workload: &Workload, mark: &Restarted) -> bool {
    workload.is_changed() || mark.before.is_some_and(|before| workload.has_available(before))
}

/// For the mark: whether the workload is too unwell to be waited for; and how many pods are available, if these are some but not all.
fn how_it_was(look: &Look<'_>, workload: &Workload) -> (bool, Option<i32>) {
    // The version that is left may have made it unwell; the earlier mark says how it was before.
    if look.back {
        return workload.restarted.as_ref().map_or((false, None), |mark| (mark.unwell, mark.before));
    }
    let unwell = !workload.is_well();
    let before = workload.steps.and_then(Steps::available_of_new).filter(|before| unwell && *before > 0);
    (unwell && before.is_none(), before)
}

/// Decides about the workloads. The reports are about all of them.
pub fn next(look: &Look<'_>) -> (Next, Vec<Report>) {
    let mut reports = Vec::new();
    let (mut waits, mut failed, mut open) = (None, None, Vec::new());
    for (index, (workload, digest)) in look.workloads.iter().enumerate() {
        let id = workload.id();
        if let Some(report) = look.memory.refused(workload) {
            reports.push(report.clone());
            continue;
        }
        let ours = workload.restarted.as_ref().filter(|mark| mark.at >= look.since);
        if workload.digest.as_ref() != Some(digest) {
            let never = look.back && workload.digest.is_none() && !look.behind.contains_key(&id);
            if let Some(owner) = workload.owner.as_ref().filter(|_| !never) {
                let message = format!("{id} belongs to {owner}, which writes its template; restart it there");
                reports.push(Report::new(Reason::Owned, &id, message));
            } else if let Some(report) = undone(look, workload, ours, digest) {
                reports.push(report);
            } else if !never {
                match earlier_restart(look, workload) {
                    None => open.push((workload.hold.is_some() || !workload.is_well(), index)),
                    Some(RestartProgress::Late) => _ = failed.get_or_insert(late_message(&id)),
                    Some(_) => _ = waits.get_or_insert(being_restarted(&id)),
                }
            }
            continue;
        }
        let Some(mark) = ours else { continue };
        if let Some((reason, rest)) = workload.hold {
            reports.push(Report::new(reason, &id, format!("{id} {rest}")));
            continue;
        }
        match restart_progress(look, workload, mark) {
            RestartProgress::Complete => {}
            _ if mark.unwell => {
                let message = format!("{id} was not healthy before its restart, so Nudge did not wait for it");
                reports.push(Report::new(Reason::Unwell, &id, message));
            }
            RestartProgress::Moving => _ = waits.get_or_insert(being_restarted(&id)),
            RestartProgress::Late if workload.is_changed() => {
                let message = format!(
                    "{id} did not come up, but somebody has changed its template since its restart, so this says nothing \
                     about the version"
                );
                reports.push(Report::new(Reason::TemplateChanged, &id, message));
            }
            RestartProgress::Late if look.back => {
                let hint = "see its pods, and delete one that keeps a StatefulSet from replacing it";
                reports.push(Report::new(Reason::NotBack, &id, format!("{}: {hint}", late_message(&id))));
            }
            RestartProgress::Late if is_excused(workload, mark) => {
                let message = format!(
                    "{id} did not come up after its restart, but has no fewer pods available than before, so this says \
                     nothing about the version"
                );
                reports.push(Report::new(Reason::Unwell, &id, message));
            }
            RestartProgress::Late => _ = failed.get_or_insert(late_message(&id)),
        }
    }
    reports.sort_by(|one, other| one.sort_key().cmp(&other.sort_key()));
    if let Some(message) = failed {
        return (Next::Failed(message), reports);
    }
    // What goes back does not wait for the health of what went before: one after another only forward.
    if let Some(message) = waits.filter(|_| !look.back || open.is_empty()) {
        return (Next::Wait(message), reports);
    }
    if look.held && !open.is_empty() {
        return (Next::Wait(UNDECIDED.to_owned()), reports);
    }
    // Well workloads come first, because they prove something; the others may recover meanwhile.
    open.sort_unstable();
    let step = open.first().map(|(_, index)| {
        let (workload, digest) = &look.workloads[*index];
        let (unwell, before) = how_it_was(look, workload);
        // Clocks of leaders differ, and a mark must not be older than the stage.
        let at = look.now.max(look.since);
        let template = workload.template.clone();
        Next::Restart { index: *index, mark: Restarted { at, digest: digest.clone(), template, unwell, before } }
    });
    (step.unwrap_or(Next::Done), reports)
}
