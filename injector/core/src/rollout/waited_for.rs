//! Which of the pods that have the target are waited for, and which can't be.

use std::collections::{HashMap, HashSet};

use nudge_api::{Reason, SkippedPod};

use super::batch::is_assigned;
use super::state::Move;
use super::{Observation, Subject};

/// The move with the pods that are waited for brought up to date. This comes before any of them is asked about the target.
pub(super) fn updated(moved: Move, seen: &Observation<'_>, now: i64) -> Move {
    let mut skipped = present(moved.skipped, seen);
    let there: HashSet<&str> = seen.pods.iter().map(|pod| pod.uid.as_str()).collect();
    let mut restarts = moved.restarts.without(&skipped, |uid| there.contains(uid));
    // A skipped pod that is well and runs the target counts like the others from now on.
    let entries: HashSet<&str> = skipped.iter().map(|skipped| skipped.uid.as_str()).collect();
    let recovered =
        |pod: &&Subject| entries.contains(pod.uid.as_str()) && pod.unfit(now).is_none() && pod.has_taken(&moved.target);
    let recovered: Vec<&Subject> = seen.pods.iter().filter(recovered).collect();
    if !recovered.is_empty() {
        let uids: HashSet<&str> = recovered.iter().map(|pod| pod.uid.as_str()).collect();
        skipped.retain(|skipped| !uids.contains(skipped.uid.as_str()));
        restarts = restarts.with(&recovered);
    }
    let moved = Move { skipped, restarts, ..moved };
    // Of some nothing can be expected at the moment, such as those that have no node yet.
    let lost: Vec<SkippedPod> =
        waited_for(&moved, seen).into_iter().filter_map(|pod| Some(pod.skipped(pod.unreachable()?, false))).collect();
    Move { skipped: [moved.skipped, lost].concat(), ..moved }
}

/// The entries without pods that are gone.
pub(super) fn present(mut skipped: Vec<SkippedPod>, seen: &Observation<'_>) -> Vec<SkippedPod> {
    let there: HashSet<&str> = seen.pods.iter().map(|pod| pod.uid.as_str()).collect();
    skipped.retain(|skipped| there.contains(skipped.uid.as_str()));
    skipped
}

/// Why pods are skipped, by uid.
pub(super) fn reasons(moved: &Move) -> HashMap<&str, Reason> {
    moved.skipped.iter().map(|skipped| (skipped.uid.as_str(), skipped.reason)).collect()
}

/// Skipped pods that could be waited for when the target was assigned to them.
pub(super) fn lost(moved: &Move) -> HashSet<&str> {
    moved.skipped.iter().filter(|skipped| !skipped.before).map(|skipped| skipped.uid.as_str()).collect()
}

/// Skipped pods that were healthy when the target was assigned to them, and are not Ready: there is no further batch while there are any.
pub(super) fn fallen<'a>(moved: &Move, seen: &Observation<'a>) -> Vec<&'a Subject> {
    let lost = lost(moved);
    let fell = |pod: &&Subject| !pod.ready && pod.was_ready && !pod.ending && lost.contains(pod.uid.as_str());
    seen.pods.iter().filter(fell).collect()
}

/// The pods that have the target and are not skipped.
pub(super) fn waited_for<'a>(moved: &Move, seen: &Observation<'a>) -> Vec<&'a Subject> {
    let reasons = reasons(moved);
    let assigned = seen.pods.iter().filter(|pod| is_assigned(&moved.groups, pod));
    assigned.filter(|pod| !reasons.contains_key(pod.uid.as_str())).collect()
}
