//! Whether the pods that were told a version run it, Ready and for long enough, and who of them can't be waited for. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::Subject;
use super::back::fail;
use super::batch::is_told;
use super::step::{Situation, Step, after, progressed, waits};
use super::subject::Opinion;
use crate::api::{PodRestarts, SkippedPod, VersionedConfigStatus};

/// Why a pod is skipped that was well and does not take what it was told.
pub(super) const SILENT: &str = "NotAcknowledged";

/// The first thing that a pod which is waited for says against the target.
pub(super) fn verdict(status: &VersionedConfigStatus, seen: &Situation<'_>, target: &str) -> Option<(String, String)> {
    let rollout = &status.rollout;
    waited_for(status, seen).find_map(|pod| match pod.opinion(target, rollout) {
        Opinion::Against(word, sentence) => Some((word, sentence)),
        _ => None,
    })
}

/// The entry of a pod that can't be waited for.
pub(super) fn skip(pod: &Subject, reason: &str) -> SkippedPod {
    SkippedPod { name: pod.name.clone(), uid: pod.uid.clone(), reason: reason.to_owned() }
}

/// Whether the pod can't be waited for.
pub(super) fn is_skipped(status: &VersionedConfigStatus, pod: &Subject) -> bool {
    status.rollout.skipped.iter().any(|skipped| skipped.uid == pod.uid)
}

/// The pods that were told, without those that can't be waited for.
fn waited_for<'a>(status: &'a VersionedConfigStatus, seen: &'a Situation<'a>) -> impl Iterator<Item = &'a Subject> {
    let told = seen.pods.iter().filter(|pod| is_told(&status.rollout.groups, pod));
    told.filter(|pod| !is_skipped(status, pod))
}

/// Waits until all that are waited for run `version` and have been Ready for long enough; `None` once that is so.
pub(super) fn prove(status: &mut VersionedConfigStatus, seen: &Situation<'_>, version: &str) -> Option<Step> {
    forget_gone(status, seen);
    // Whoever could not be waited for and has come round counts like the others from now on.
    let come_round = |skipped: &SkippedPod| {
        let pod = seen.pods.iter().find(|pod| pod.uid == skipped.uid);
        pod.is_some_and(|pod| pod.unfit(seen.now.0.as_second()).is_none() && pod.has_taken(version))
    };
    let rounds: Vec<String> = status
        .rollout
        .skipped
        .iter()
        .filter(|skipped| come_round(skipped))
        .map(|skipped| skipped.uid.clone())
        .collect();
    for uid in rounds {
        status.rollout.skipped.retain(|skipped| skipped.uid != uid);
        let restarts = seen.pods.iter().find(|pod| pod.uid == uid).map_or(0, |pod| pod.restarts);
        status.rollout.restarts.retain(|known| known.uid != uid);
        status.rollout.restarts.push(PodRestarts { uid, count: restarts });
    }
    // Of some nothing can be expected at the moment, such as those that were born and have no node yet.
    let lost: Vec<SkippedPod> =
        waited_for(status, seen).filter_map(|pod| Some(skip(pod, pod.unreachable()?))).collect();
    if !lost.is_empty() {
        status.rollout.skipped.extend(lost);
        return Some(Step { more: true, ..Step::default() });
    }
    let since = progressed(status, seen.now);
    let (unproven, silent): (usize, Vec<SkippedPod>) = {
        let unproven: Vec<&Subject> =
            waited_for(status, seen).filter(|pod| pod.opinion(version, &status.rollout) != Opinion::Proven).collect();
        let late = seen.now.0 >= after(since, seen.spec.ack_timeout_seconds).0;
        let silent = |pod: &&&Subject| late && pod.was_ready && !pod.has_taken(version);
        (unproven.len(), unproven.iter().filter(silent).map(|pod| skip(pod, SILENT)).collect())
    };
    if !silent.is_empty() {
        status.rollout.skipped.extend(silent);
        return Some(Step { more: true, ..Step::default() });
    }
    if unproven > 0 {
        status.rollout.applied_at = None;
        let deadline = after(since, seen.spec.progress_deadline_seconds);
        if seen.now.0 >= deadline.0 {
            return Some(overdue(status, seen, version, unproven));
        }
        let acknowledged = after(since, seen.spec.ack_timeout_seconds);
        let again = if seen.now.0 < acknowledged.0 { acknowledged } else { deadline };
        let sentence = format!("{unproven} pods do not run version {version} yet, or are not Ready");
        return Some(waits("BeingCurrent", sentence, Some(again)));
    }
    // Without anybody there is nothing to watch.
    waited_for(status, seen).next()?;
    let applied = status.rollout.applied_at.get_or_insert(MicroTime(seen.now.0)).0;
    let enough = after(applied, seen.spec.min_ready_seconds);
    if seen.now.0 < enough.0 {
        let sentence = format!("all pods that were told run version {version}; they are watched for a while");
        return Some(waits("BeingCurrent", sentence, Some(enough)));
    }
    None
}

/// The rollout stood still for too long.
fn overdue(status: &mut VersionedConfigStatus, seen: &Situation<'_>, version: &str, unproven: usize) -> Step {
    let seconds = seen.spec.progress_deadline_seconds;
    let message = format!("{unproven} pods did not come to run version {version}, Ready, within {seconds} s");
    fail(status, seen, version, "ProgressDeadlineExceeded".to_owned(), &message)
}

/// What is known of pods that are gone is dropped.
pub(super) fn forget_gone(status: &mut VersionedConfigStatus, seen: &Situation<'_>) {
    let there = |uid: &str| seen.pods.iter().any(|pod| pod.uid == uid);
    status.rollout.skipped.retain(|skipped| there(&skipped.uid));
    status.rollout.restarts.retain(|known| there(&known.uid));
}
