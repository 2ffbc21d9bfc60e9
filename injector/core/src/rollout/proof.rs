//! Whether the pods that were told a version run it, Ready and for long enough, and who of them can't be waited for. Pure.

use std::collections::{HashMap, HashSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use nudge_api::{BatchWatch, SkippedPod, VersionedConfigStatus};

use super::Subject;
use super::back::fail;
use super::batch::is_told;
use super::restarts::{self, Before};
use super::step::{Situation, Step, after, held, waits};
use super::subject::Opinion;

/// Why a pod is skipped that was well and does not take what it was told.
pub(super) const SILENT: &str = "NotAcknowledged";

/// Entries that the status has room for.
const MAX_SKIPPED: usize = 2000;

/// The longest time for which a batch is watched because of a probe, in seconds.
const LONGEST_WATCH: u32 = 300;

/// The first thing that a pod which is waited for says against the target, or one that was silent and is not Ready any more.
pub(super) fn verdict(status: &VersionedConfigStatus, seen: &Situation<'_>, target: &str) -> Option<(String, String)> {
    let before = Before::of(&status.rollout);
    let waited_for = waited_for(status, seen).into_iter().map(|pod| pod.opinion(target, before.has_restarted(pod)));
    let skipped = skipped(status);
    let silent = seen.pods.iter().filter(|pod| !pod.ready && skipped.get(pod.uid.as_str()) == Some(&SILENT));
    waited_for.chain(silent.map(|pod| pod.opinion(target, false))).find_map(|opinion| match opinion {
        Opinion::Against(word, message) => Some((word, message)),
        _ => None,
    })
}

/// The entry of a pod that can't be waited for; `before` where it could not when it was told either.
pub(super) fn skip(pod: &Subject, reason: &str, before: bool) -> SkippedPod {
    SkippedPod { name: pod.name.clone(), uid: pod.uid.clone(), reason: reason.to_owned(), before }
}

/// Why pods can't be waited for, by uid.
pub(super) fn skipped(status: &VersionedConfigStatus) -> HashMap<&str, &str> {
    status.rollout.skipped.iter().map(|skipped| (skipped.uid.as_str(), skipped.reason.as_str())).collect()
}

/// Pods that are not waited for although they were healthy when they were told, and that are not Ready: no further batch goes out while
/// there are any.
pub(super) fn fallen<'a>(status: &VersionedConfigStatus, seen: &Situation<'a>) -> Vec<&'a Subject> {
    let lost = lost(status);
    let fell = |pod: &&Subject| !pod.ready && pod.was_ready && !pod.ending && lost.contains(pod.uid.as_str());
    seen.pods.iter().filter(fell).collect()
}

/// Pods that can't be waited for any more since they were told.
pub(super) fn lost(status: &VersionedConfigStatus) -> HashSet<&str> {
    status.rollout.skipped.iter().filter(|skipped| !skipped.before).map(|skipped| skipped.uid.as_str()).collect()
}

/// How long a batch is watched: so long that the probes of its pods notice, or for `minReadySeconds` where that is longer.
fn watch(told: &[&Subject], min_ready_seconds: u32) -> BatchWatch {
    let slowest = told.iter().filter_map(|pod| pod.slowest_probe.as_ref()).max_by_key(|probe| probe.seconds());
    match slowest.map(|probe| (probe.seconds().min(LONGEST_WATCH), probe)) {
        Some((seconds, probe)) if seconds > min_ready_seconds => {
            BatchWatch { seconds, reason: format!("{probe} to notice a change") }
        }
        _ => BatchWatch { seconds: min_ready_seconds, reason: "spec.rollout.minReadySeconds says so".to_owned() },
    }
}

/// The pods that were told, without those that can't be waited for.
fn waited_for<'a>(status: &VersionedConfigStatus, seen: &Situation<'a>) -> Vec<&'a Subject> {
    let skipped = skipped(status);
    let told = seen.pods.iter().filter(|pod| is_told(&status.rollout.groups, pod));
    told.filter(|pod| !skipped.contains_key(pod.uid.as_str())).collect()
}

/// Whether any pod that was told is waited for.
pub(super) fn anybody_judges(status: &VersionedConfigStatus, seen: &Situation<'_>) -> bool {
    !waited_for(status, seen).is_empty()
}

/// Those of them that do not run `version`, Ready.
fn unproven<'a>(status: &VersionedConfigStatus, seen: &Situation<'a>, version: &str) -> Vec<&'a Subject> {
    let before = Before::of(&status.rollout);
    let proven = |pod: &&Subject| pod.opinion(version, before.has_restarted(pod)) == Opinion::Proven;
    waited_for(status, seen).into_iter().filter(|pod| !proven(pod)).collect()
}

/// Brings up to date who is waited for: before any of them says something about `version`.
pub(super) fn tend(status: &mut VersionedConfigStatus, seen: &Situation<'_>, version: &str) {
    forget_gone(status, seen);
    // Whoever could not be waited for and has come round counts like the others from now on.
    let entries = skipped(status);
    let now = seen.now.0.as_second();
    let round =
        |pod: &&Subject| entries.contains_key(pod.uid.as_str()) && pod.unfit(now).is_none() && pod.has_taken(version);
    let rounds: Vec<&Subject> = seen.pods.iter().filter(round).collect();
    if !rounds.is_empty() {
        let uids: HashSet<&str> = rounds.iter().map(|pod| pod.uid.as_str()).collect();
        status.rollout.skipped.retain(|skipped| !uids.contains(skipped.uid.as_str()));
        restarts::remember(&mut status.rollout, &rounds);
    }
    // Of some nothing can be expected at the moment, such as those that were born and have no node yet.
    let lost: Vec<SkippedPod> =
        waited_for(status, seen).into_iter().filter_map(|pod| Some(skip(pod, pod.unreachable()?, false))).collect();
    status.rollout.skipped.extend(lost);
}

/// Waits until all that are waited for run `version` and have been Ready for long enough; `None` once that is so.
pub(super) fn prove(status: &mut VersionedConfigStatus, seen: &Situation<'_>, version: &str) -> Option<Step> {
    let unproven = unproven(status, seen, version);
    // What becomes of a pod is known only while its node is Ready.
    let fallen = fallen(status, seen).into_iter().filter(|pod| pod.node_ready).count();
    if !unproven.is_empty() || fallen > 0 {
        // What came before counts as little as the time in which nobody looked.
        let since = status.rollout.unproven_since.as_ref().map_or(seen.now.0, |since| since.0);
        let acknowledged = after(since, seen.spec.ack_timeout_seconds);
        let late = seen.now.0 >= acknowledged.0;
        let silent = |pod: &&&Subject| late && pod.was_ready && !pod.has_taken(version);
        let silent: Vec<SkippedPod> = unproven.iter().filter(silent).map(|pod| skip(pod, SILENT, false)).collect();
        let unproven = unproven.len() + fallen;
        if status.rollout.skipped.len() + silent.len() > MAX_SKIPPED {
            let message = format!(
                "{} pods could not be waited for, more than there is room for in the status; mend them, or move fewer at a time (spec.rollout.batch)",
                status.rollout.skipped.len() + silent.len()
            );
            return Some(held("TooManySkipped", message));
        }
        if !silent.is_empty() {
            status.rollout.skipped.extend(silent);
            return Some(Step { more: true, ..Step::default() });
        }
        status.rollout.applied_at = None;
        status.rollout.unproven_since = Some(MicroTime(since));
        let deadline = after(since, seen.spec.progress_deadline_seconds);
        if seen.now.0 >= deadline.0 {
            return Some(overdue(status, seen, version, unproven));
        }
        let again = if late { deadline } else { acknowledged };
        let message = format!("{unproven} pods do not run version {version} yet, or are not Ready");
        return Some(waits("Progressing", message, Some(again)));
    }
    status.rollout.unproven_since = None;
    let told = waited_for(status, seen);
    // Without anybody there is nothing to watch.
    told.first()?;
    let watch = watch(&told, seen.spec.min_ready_seconds);
    let applied = status.rollout.applied_at.get_or_insert(MicroTime(seen.now.0)).0;
    let enough = after(applied, watch.seconds);
    let waits = (seen.now.0 < enough.0).then(|| {
        let (count, total, BatchWatch { seconds, reason }) = (told.len(), seen.pods.len(), &watch);
        let message =
            format!("{count} of {total} pods run version {version} and are watched for {seconds} s, because {reason}");
        waits("Progressing", message, Some(enough))
    });
    status.rollout.watch = Some(watch);
    waits
}

/// The rollout stood still for too long.
fn overdue(status: &mut VersionedConfigStatus, seen: &Situation<'_>, version: &str, unproven: usize) -> Step {
    let seconds = seen.spec.progress_deadline_seconds;
    let message = format!("{unproven} pods did not come to run version {version}, Ready, within {seconds} s");
    fail(status, seen, version, "ProgressDeadlineExceeded".to_owned(), &message)
}

/// What is known of pods that are gone is dropped.
pub(super) fn forget_gone(status: &mut VersionedConfigStatus, seen: &Situation<'_>) {
    let there: HashSet<&str> = seen.pods.iter().map(|pod| pod.uid.as_str()).collect();
    status.rollout.skipped.retain(|skipped| there.contains(skipped.uid.as_str()));
    restarts::keep(&mut status.rollout, |uid| there.contains(uid));
}
