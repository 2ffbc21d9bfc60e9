//! The way back: from a version that failed, or that is not wanted any more, to the current one. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{GroupStatus, OnFailure, Phase, RolloutFailure, RolloutStage, VersionedConfigStatus};

use super::batch::is_told;
use super::proof::{forget_gone, skip, skipped};
use super::step::{Restarts, Situation, Step, after, clear, enter, held, next_revision, progressed, waits};
use super::{Subject, restarts};

/// What is said while a move that has failed is held.
pub(super) fn stands_still(message: &str) -> String {
    format!(
        "{message}; the move stands still (onFailure: Pause): set spec.current to another version, or onFailure to Rollback"
    )
}

/// The target is bad: every pod goes back, or all stands still, as the spec says.
pub(super) fn fail(
    status: &mut VersionedConfigStatus,
    seen: &Situation<'_>,
    target: &str,
    word: String,
    message: &str,
) -> Step {
    status.rollout.failure = Some(RolloutFailure {
        version: target.to_owned(),
        generation: seen.generation,
        reason: word,
        message: message.to_owned(),
    });
    if seen.spec.on_failure == OnFailure::Pause {
        let text = stands_still(message);
        return Step { told: Some((true, "Failed", text.clone())), ..held("Failed", text) };
    }
    status.phase = Phase::RollingBack;
    turn_back(status, seen, RolloutStage::RollingBack, is_told);
    let current = status.current.clone().unwrap_or_default();
    let told = (true, "RollingBack", format!("{message}; every pod returns to version {current}"));
    Step { told: Some(told), more: true, ..Step::default() }
}

/// Another version is wanted before the target was current.
pub(super) fn begin_leaving(status: &mut VersionedConfigStatus, seen: &Situation<'_>, target: &str) -> Step {
    status.phase = Phase::Progressing;
    turn_back(status, seen, RolloutStage::Leaving, is_told);
    let told = (
        false,
        "Leaving",
        format!(
            "version {target} is not wanted any more; pods leave it for {}",
            status.current.clone().unwrap_or_default()
        ),
    );
    Step { told: Some(told), more: true, ..Step::default() }
}

/// The version before the current one is wanted: it is current again at once, and every pod is told so in this one write. What was current
/// is no way back any more: to go there again is a rollout like any other.
pub(super) fn return_to(status: &mut VersionedConfigStatus, seen: &Situation<'_>, from: &str) -> Step {
    // Workloads have been restarted with the version that is left since it was published, or at the earliest since it was sealed.
    let published = status.published_at.clone().filter(|_| status.published.as_deref() == Some(from));
    let restarted = published.or_else(|| status.version(from)?.sealed_at.clone()).unwrap_or_else(|| seen.now.clone());
    status.target = status.current.replace(seen.desired.to_owned());
    status.previous = None;
    status.rollout.failure = None;
    status.rollout.began_at = Some(seen.now.clone());
    status.phase = Phase::RollingBack;
    // Some pods may run a target that was on its way, the others run what is left.
    turn_back(status, seen, RolloutStage::Leaving, |_, _| true);
    status.rollout.workloads_restarted_at = Some(restarted);
    let message = format!("version {} is wanted again; every pod returns to it from {from}", seen.desired);
    Step { told: Some((true, "RollingBack", message)), more: true, ..Step::default() }
}

/// Every pod is told the current version again. `leaves` says which of them run something else.
fn turn_back(
    status: &mut VersionedConfigStatus,
    seen: &Situation<'_>,
    stage: RolloutStage,
    leaves: impl Fn(&[GroupStatus], &Subject) -> bool,
) {
    let groups = std::mem::take(&mut status.rollout.groups);
    if status.rollout.stage == Some(RolloutStage::Restarting) {
        status.rollout.workloads_restarted_at = status.rollout.progressed_at.as_ref().map(|time| Time(time.0));
    }
    enter(status, stage, seen.now);
    next_revision(status, seen.now);
    // Only pods that were told the target have something to leave, and only of those that are well it is waited for.
    restarts::clear(&mut status.rollout);
    status.rollout.skipped = seen
        .pods
        .iter()
        .filter_map(|pod| {
            let reason = if leaves(&groups, pod) { pod.unreachable()? } else { return None };
            Some(skip(pod, reason, true))
        })
        .collect();
}

/// Waits until no pod runs the abandoned target any more; whoever takes too long is left behind. `None` once that is so.
fn away(status: &mut VersionedConfigStatus, seen: &Situation<'_>, current: &str) -> Option<Step> {
    forget_gone(status, seen);
    let deadline = after(progressed(status, seen.now), seen.spec.progress_deadline_seconds);
    let target = status.target.as_deref();
    let skipped = skipped(status);
    let away = seen.pods.iter().filter(|pod| !skipped.contains_key(pod.uid.as_str()));
    let away =
        away.filter(|pod| pod.runs.as_deref() == target || (pod.in_contact && pod.runs.as_deref() != Some(current)));
    let away: Vec<&Subject> = away.collect();
    if away.is_empty() || seen.now.0 >= deadline.0 {
        return None;
    }
    let message = format!("{} pods do not run version {current} again yet", away.len());
    Some(waits("RollingBack", message, Some(deadline)))
}

/// What is still to be waited for on the way back: pods, the plain ConfigMap, workloads without an agent.
fn on_the_way_back(status: &mut VersionedConfigStatus, seen: &Situation<'_>, current: &str) -> Option<Step> {
    if let Some(step) = away(status, seen, current) {
        return Some(step);
    }
    if !seen.published {
        return Some(waits("Publishing", format!("version {current} is being published again"), None));
    }
    match seen.restart {
        Restarts::Busy(message) => Some(waits("Restarting", message.clone(), None)),
        // What did not come up with the good version either is told by the condition `Restarted`.
        Restarts::Done | Restarts::Failed(_) | Restarts::Held(_) => None,
    }
}

/// The target is not wanted any more: once everything is back, the next one can be moved to.
pub(super) fn leave(status: &mut VersionedConfigStatus, seen: &Situation<'_>, current: &str) -> Step {
    if let Some(step) = on_the_way_back(status, seen, current) {
        return step;
    }
    clear(status);
    next_revision(status, seen.now);
    Step { more: true, ..Step::default() }
}

/// The target was bad: once everything is back, it is so told.
pub(super) fn roll_back(status: &mut VersionedConfigStatus, seen: &Situation<'_>, current: &str) -> Step {
    status.phase = Phase::RollingBack;
    if let Some(step) = on_the_way_back(status, seen, current) {
        return step;
    }
    let failure = status.rollout.failure.clone();
    clear(status);
    next_revision(status, seen.now);
    status.phase = Phase::Failed;
    let message = failure.map(|failure| failure.message).unwrap_or_default();
    Step {
        told: Some((true, "Failed", format!("every pod runs version {current} again: {message}"))),
        more: true,
        ..Step::default()
    }
}
