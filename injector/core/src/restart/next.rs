//! Which workload is restarted next, or what is waited for. Pure. What matters stands on the workloads: a leader that takes over goes on
//! where the last one stopped.

use std::collections::BTreeMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::marks::Restarted;
use super::memory::Memory;
use super::workload::{Progress, Workload};

/// What cannot be restarted, or is not waited for: a word and a sentence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Report {
    /// A word.
    pub word: &'static str,
    /// A sentence that names the object.
    pub message: String,
    /// Kind and name of the object, such as `Deployment/web`; empty for several.
    pub object: String,
}

impl Report {
    pub(super) fn new(word: &'static str, object: &str, message: String) -> Self {
        Self { word, message, object: object.to_owned() }
    }

    fn undone(id: &str) -> Self {
        Self::new("Undone", id, format!("somebody has undone the restart of {id}; restart it there"))
    }
}

/// What is looked at.
#[derive(Clone, Debug)]
pub struct Look<'a> {
    /// The workloads that use it, each with the digest that its template should have.
    pub workloads: &'a [(Workload, String)],
    /// Those of which pods with an agent run another version, by their ids.
    pub behind: &'a BTreeMap<String, usize>,
    /// It is the way back from a version that was published: only what was restarted with it, by whomever, is restarted again.
    pub back: bool,
    /// When this restarting began: what was restarted before says nothing about the version.
    pub since: Timestamp,
    /// How long a workload may take that has no deadline of its own, in seconds.
    pub deadline: u32,
    /// What this leader knows of this part of the rollout.
    pub memory: &'a Memory,
    /// Now.
    pub now: Timestamp,
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// All that is to be restarted was, and is well.
    Done,
    /// This workload's template gets the digest.
    Restart {
        /// Its place in the list.
        index: usize,
        /// What is written beside it.
        mark: Restarted,
    },
    /// A workload is on its way.
    Wait(String),
    /// A workload did not come up, which is the version's fault.
    Failed(String),
}

/// When that time is over.
pub(super) fn over(since: Timestamp, seconds: u32, now: Timestamp) -> bool {
    since.checked_add(SignedDuration::from_secs(i64::from(seconds))).is_ok_and(|end| end <= now)
}

/// How far a restart is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    Well,
    OnItsWay,
    Late,
}

fn on_its_way(id: &str) -> String {
    format!("{id} is being restarted")
}

fn late(id: &str) -> String {
    format!("{id} did not come up after its restart")
}

/// How far the restart of this mark is.
fn stand(look: &Look<'_>, workload: &Workload, mark: &Restarted) -> Stand {
    let in_time = !over(mark.at, look.deadline, look.now);
    // On the way back a Deployment's controller speaks of the version that is left until it has come forward.
    let patient = match workload.progress {
        Progress::Complete => return Stand::Well,
        Progress::Failed => look.back && in_time,
        Progress::Moving => in_time || (workload.has_deadline && !look.back),
    };
    if patient { Stand::OnItsWay } else { Stand::Late }
}

/// Whether somebody has taken the digest away that a restart of this part wrote, and perhaps the mark with it.
fn undone(look: &Look<'_>, workload: &Workload, ours: Option<&Restarted>, desired: &str) -> Option<Report> {
    match ours {
        Some(mark) if mark.digest == desired => Some(Report::undone(&workload.id())),
        // It was restarted since for another of its configs.
        Some(mark) if workload.digest.as_ref() == Some(&mark.digest) => None,
        _ => look.memory.was_restarted(workload, desired).then(|| Report::undone(&workload.id())),
    }
}

/// How far the restart is that this workload is still in, with what was published before another of its configs was. Whoever restarts it
/// again now can't tell whether it was well, and nobody would be told that the restart before had failed.
fn overtaken(look: &Look<'_>, workload: &Workload) -> Option<Stand> {
    let mark = workload.restarted.as_ref().filter(|mark| workload.digest.as_ref() == Some(&mark.digest))?;
    // What is left is not waited for, nor what nobody waits for anyway.
    if look.back || mark.unwell || workload.hold.is_some() || workload.progress == Progress::Complete {
        return None;
    }
    if mark.at >= look.since {
        return Some(stand(look, workload, mark));
    }
    // The rollout that restarted it judges it. It has until then.
    (!over(mark.at, look.deadline, look.now)).then_some(Stand::OnItsWay)
}

/// Decides. The reports are those of all that was looked at.
pub fn next(look: &Look<'_>) -> (Next, Vec<Report>) {
    let mut reports = Vec::new();
    let (mut waits, mut failed, mut open) = (None, None, Vec::new());
    for (index, (workload, desired)) in look.workloads.iter().enumerate() {
        let id = workload.id();
        if let Some(report) = look.memory.refused(workload) {
            reports.push(report.clone());
            continue;
        }
        let ours = workload.restarted.as_ref().filter(|mark| mark.at >= look.since);
        if workload.digest.as_ref() != Some(desired) {
            let never = look.back && workload.digest.is_none() && !look.behind.contains_key(&id);
            if let Some(owner) = workload.owner.as_ref().filter(|_| !never) {
                let message = format!("{id} belongs to {owner}, which writes its template; restart it there");
                reports.push(Report::new("Owned", &id, message));
            } else if let Some(report) = undone(look, workload, ours, desired) {
                reports.push(report);
            } else if !never {
                match overtaken(look, workload) {
                    None => open.push((workload.hold.is_some() || workload.progress != Progress::Complete, index)),
                    Some(Stand::Late) => _ = failed.get_or_insert(late(&id)),
                    Some(_) => _ = waits.get_or_insert(on_its_way(&id)),
                }
            }
            continue;
        }
        let Some(mark) = ours else { continue };
        if let Some((word, why)) = workload.hold {
            reports.push(Report::new(word, &id, format!("{id} {why}")));
            continue;
        }
        match stand(look, workload, mark) {
            Stand::Well => {}
            _ if mark.unwell => {
                let message = format!("{id} was not well before it was restarted, and was not waited for");
                reports.push(Report::new("Unwell", &id, message));
            }
            Stand::OnItsWay => _ = waits.get_or_insert(on_its_way(&id)),
            Stand::Late if look.back => {
                let hint = "see its pods, and delete one that keeps a StatefulSet from replacing it";
                reports.push(Report::new("NotBack", &id, format!("{}: {hint}", late(&id))));
            }
            Stand::Late => _ = failed.get_or_insert(late(&id)),
        }
    }
    reports.sort();
    if let Some(message) = failed {
        return (Next::Failed(message), reports);
    }
    if let Some(message) = waits {
        return (Next::Wait(message), reports);
    }
    // Those that can prove something come first; others may have recovered by then.
    open.sort_unstable();
    let step = open.first().map(|(_, index)| {
        let (workload, desired) = &look.workloads[*index];
        // On the way back it is hardly well, which is not its own fault; what it was before stays known.
        let before = workload.restarted.as_ref().is_some_and(|mark| mark.unwell);
        let unwell = if look.back { before } else { workload.progress != Progress::Complete };
        // Clocks of leaders differ, and a mark must not look older than it is.
        let at = look.now.max(look.since);
        Next::Restart { index: *index, mark: Restarted { at, digest: desired.clone(), unwell } }
    });
    (step.unwrap_or(Next::Done), reports)
}
