//! Whether the pods that have the target run it, Ready and for long enough.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use nudge_api::{BatchWatch, Explanation, Reason, SkippedPod};

use super::blame::Opinion;
use super::clock::after;
use super::state::{Move, Proof, Since};
use super::waited_for::{fallen, waited_for};
use super::{Effects, Observation, Subject};

/// Entries of skipped pods that the status has room for.
const MAX_SKIPPED: usize = 2000;

/// The longest time for which a batch is watched because of a probe, in seconds.
const LONGEST_WATCH: u32 = 300;

/// Whether the target is proven.
pub(super) enum Verdict {
    /// The pods that are waited for have run it, Ready, for long enough.
    Proven,
    /// Not yet.
    Waits(Effects),
    /// They did not come to run it in time.
    Overdue(Explanation),
}

/// Looks at the pods that are waited for. A pod that was well and does not acknowledge the target in time is skipped.
pub(super) fn prove(moved: Move, proof: Proof, seen: &Observation<'_>, now: &Time) -> (Move, Proof, Verdict) {
    let unproven = unproven(&moved, seen);
    // What becomes of a pod is known only while its node is Ready.
    let fallen = fallen(&moved, seen).into_iter().filter(|pod| pod.node_ready).count();
    if unproven.is_empty() && fallen == 0 {
        let (proof, verdict) = watched(&moved, proof, seen, now);
        return (moved, proof, verdict);
    }
    let since = match &proof.since {
        Since::Unproven(since) => since.clone(),
        // The time before counts as little as the time in which nobody looked.
        _ => MicroTime(now.0),
    };
    let acknowledged = after(since.0, seen.spec.ack_timeout_seconds);
    let late = now.0 >= acknowledged.0;
    let silent = |pod: &&&Subject| late && pod.was_ready && !pod.has_taken(&moved.target);
    let silent: Vec<SkippedPod> =
        unproven.iter().filter(silent).map(|pod| pod.skipped(Reason::NotAcknowledged, false)).collect();
    let skipped = moved.skipped.len() + silent.len();
    if skipped > MAX_SKIPPED {
        let message = format!(
            "{skipped} pods can't be waited for, more than the status has room for; repair them, or move fewer at a time \
             (spec.rollout.batch)"
        );
        return (moved, proof, Verdict::Waits(Effects::held(Reason::TooManySkipped, message)));
    }
    if !silent.is_empty() {
        let moved = Move { skipped: [moved.skipped, silent].concat(), ..moved };
        return (moved, proof, Verdict::Waits(Effects::more()));
    }
    let count = unproven.len() + fallen;
    let deadline = after(since.0, seen.spec.progress_deadline_seconds);
    let proof = Proof { since: Since::Unproven(since), ..proof };
    let version = &moved.target;
    let verdict = if now.0 >= deadline.0 {
        let seconds = seen.spec.progress_deadline_seconds;
        let message = format!("{count} pods did not come to run version {version}, Ready, within {seconds} s");
        Verdict::Overdue(Reason::ProgressDeadlineExceeded.explained(message))
    } else {
        let message = format!("{count} pods do not run version {version} yet, or are not Ready");
        let look_again = if late { deadline } else { acknowledged };
        Verdict::Waits(Effects::waits(Reason::Progressing, message, Some(look_again)))
    };
    (moved, proof, verdict)
}

/// The pods that are waited for and do not run the target, or are not Ready.
fn unproven<'a>(moved: &Move, seen: &Observation<'a>) -> Vec<&'a Subject> {
    let has_restarted = moved.restarts.has_restarted();
    let proven = |pod: &&Subject| pod.opinion(&moved.target, has_restarted(pod)) == Opinion::Proven;
    waited_for(moved, seen).into_iter().filter(|pod| !proven(pod)).collect()
}

/// All that are waited for run the target and are Ready: are they for long enough?
fn watched(moved: &Move, proof: Proof, seen: &Observation<'_>, now: &Time) -> (Proof, Verdict) {
    let pods = waited_for(moved, seen);
    if pods.is_empty() {
        // There is nothing to watch.
        let since = if matches!(proof.since, Since::Unproven(_)) { Since::Unknown } else { proof.since };
        return (Proof { since, ..proof }, Verdict::Proven);
    }
    let since = match proof.since {
        Since::Applied(since) => since,
        _ => MicroTime(now.0),
    };
    let watch = watch(&pods, seen.spec.min_ready_seconds);
    let enough = after(since.0, watch.seconds);
    let verdict = if now.0 < enough.0 {
        let (count, total, BatchWatch { seconds, reason }) = (pods.len(), seen.pods.len(), &watch);
        let version = &moved.target;
        let message =
            format!("{count} of {total} pods run version {version} and are watched for {seconds} s, because {reason}");
        Verdict::Waits(Effects::waits(Reason::Progressing, message, Some(enough)))
    } else {
        Verdict::Proven
    };
    (Proof { since: Since::Applied(since), watch: Some(watch) }, verdict)
}

/// How long a batch is watched: until the probes of its pods would notice, or for `minReadySeconds` where that is longer.
fn watch(pods: &[&Subject], min_ready_seconds: u32) -> BatchWatch {
    let slowest = pods.iter().filter_map(|pod| pod.slowest_probe.as_ref()).max_by_key(|probe| probe.seconds());
    match slowest.map(|probe| (probe.seconds().min(LONGEST_WATCH), probe)) {
        Some((seconds, probe)) if seconds > min_ready_seconds => {
            BatchWatch { seconds, reason: format!("{probe} to notice a change") }
        }
        _ => BatchWatch { seconds: min_ready_seconds, reason: "spec.rollout.minReadySeconds says so".to_owned() },
    }
}
