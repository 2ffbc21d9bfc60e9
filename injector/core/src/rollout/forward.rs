//! The move to the target: batches, then the bake, then restarts of workloads.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use nudge_api::{Batch, GroupStatus, Reason, SkippedPod};

use super::back::{begin_leaving, fail, stands_still};
use super::batch::{is_assigned, is_complete, raised, with_one};
use super::blame::blame;
use super::clock::after;
use super::effects::Next;
use super::hold::hold;
use super::idle::paused;
use super::proof::{Verdict, prove};
use super::state::{Base, Idle, Move, Proof, Rollout, Since, Stage};
use super::subject::JOBS;
use super::waited_for::{updated, waited_for};
use super::{Effects, Observation, Restarts, Subject};
use crate::event_record::EventRecord;

/// One transition of a move.
pub(super) fn advance(moved: Move, stage: Stage, seen: &Observation<'_>, now: &Time) -> Next {
    if moved.target != seen.requested {
        return begin_leaving(moved, &stage, seen, now);
    }
    if seen.spec.paused {
        let effects = paused(&moved.target);
        return (Rollout::Forward(moved, unwatched(stage)), effects);
    }
    if let Some(failure) = moved.failure.as_ref().filter(|failure| failure.generation == seen.generation) {
        let effects = Effects::held(Reason::Failed, stands_still(&failure.message));
        return (Rollout::Forward(moved, stage), effects);
    }
    // Somebody has changed the spec: the target is tried again.
    let moved = updated(Move { failure: None, ..moved }, seen, now.0.as_second());
    if let Some(explanation) = blame(&moved, seen) {
        return fail(moved, stage, seen, now, explanation);
    }
    match stage {
        Stage::Moving(proof) => next_batch(moved, proof, seen, now),
        Stage::Baking(proof) => bake(moved, proof, seen, now),
        Stage::Restarting => restart(moved, seen, now),
    }
}

/// Nobody looks during a pause: afterwards the pods prove the target anew.
fn unwatched(stage: Stage) -> Stage {
    let unknown = |proof: Proof| Proof { since: Since::Unknown, ..proof };
    match stage {
        Stage::Moving(proof) => Stage::Moving(unknown(proof)),
        Stage::Baking(proof) => Stage::Baking(unknown(proof)),
        Stage::Restarting => Stage::Restarting,
    }
}

/// One more batch, once the last one is proven.
fn next_batch(moved: Move, proof: Proof, seen: &Observation<'_>, now: &Time) -> Next {
    let (moved, proof) = match proven(moved, proof, Stage::Moving, seen, now) {
        Ok(proven) => proven,
        Err(next) => return *next,
    };
    if is_complete(&moved.groups, seen.pods) {
        // Pods that were Ready for long enough need not prove it again.
        let since = match proof.since {
            Since::Applied(since) => Since::Applied(since),
            _ => Since::Unknown,
        };
        let moved = Move { progressed_at: MicroTime(now.0), ..moved };
        return (Rollout::Forward(moved, Stage::Baking(Proof { since, watch: None })), Effects::more());
    }
    // One pod, until one has proven something: those before it may be gone by now.
    let groups = if seen.spec.batch.is_none() && waited_for(&moved, seen).is_empty() {
        let judges = |pod: &Subject| pod.unfit(now.0.as_second()).is_none() && pod.workload != JOBS;
        with_one(&moved.groups, seen.pods, judges)
    } else {
        raised(&moved.groups, seen.pods, seen.spec.batch.as_ref())
    };
    let (moved, effects) = assign(moved, groups, seen, now);
    let moved = Move { progressed_at: MicroTime(now.0), ..moved };
    (Rollout::Forward(moved, Stage::Moving(Proof::default())), effects)
}

/// Assigns the target to the pods below these thresholds.
fn assign(moved: Move, groups: Vec<GroupStatus>, seen: &Observation<'_>, now: &Time) -> (Move, Effects) {
    let newly = |pod: &&Subject| is_assigned(&groups, pod) && !is_assigned(&moved.groups, pod);
    let newly: Vec<&Subject> = seen.pods.iter().filter(newly).collect();
    let unfit = |pod: &Subject| pod.unfit(now.0.as_second());
    let skipped: Vec<SkippedPod> = newly.iter().filter_map(|pod| Some(pod.skipped(unfit(pod)?, true))).collect();
    let waited_for: Vec<&Subject> = newly.iter().copied().filter(|pod| unfit(pod).is_none()).collect();
    let moved = Move {
        base: moved.base.reassigned(now),
        groups,
        skipped: [moved.skipped, skipped].concat(),
        restarts: moved.restarts.with(&waited_for),
        ..moved
    };
    let count = newly.len();
    let event = (count > 0).then(|| {
        let pods = if count == 1 { "pod" } else { "pods" };
        EventRecord::new(Reason::Batch, format!("version {} is assigned to {count} more {pods}", moved.target))
    });
    let look_again = Some(after(now.0, seen.spec.ack_timeout_seconds));
    (moved, Effects { event, look_again, more: count == 0, ..Effects::default() })
}

/// All pods run the target, and are watched.
fn bake(moved: Move, proof: Proof, seen: &Observation<'_>, now: &Time) -> Next {
    if !is_complete(&moved.groups, seen.pods) {
        // The pods of a new workload started with what all others run: the target is assigned to them at once. Batches would begin the bake
        // anew, again and again where workloads come and go.
        let groups = raised(&moved.groups, seen.pods, Some(&Batch::Share("100%".to_owned())));
        let (moved, effects) = assign(moved, groups, seen, now);
        let since = if matches!(proof.since, Since::Applied(_)) { Since::Unknown } else { proof.since };
        return (Rollout::Forward(moved, Stage::Baking(Proof { since, ..proof })), effects);
    }
    let (moved, proof) = match proven(moved, proof, Stage::Baking, seen, now) {
        Ok(proven) => proven,
        Err(next) => return *next,
    };
    let end = after(moved.progressed_at.0, seen.spec.bake_seconds);
    // Without pods there is nothing to watch.
    if !seen.pods.is_empty() && now.0 < end.0 {
        let message = format!("all pods run version {}, which is watched until it is published", moved.target);
        let effects = Effects::waits(Reason::Baking, message, Some(end));
        return (Rollout::Forward(moved, Stage::Baking(proof)), effects);
    }
    let moved = Move { progressed_at: MicroTime(now.0), ..moved };
    (Rollout::Forward(moved, Stage::Restarting), Effects::more())
}

/// The move, if the pods have proven the target and nothing holds it; else what comes instead, in the same stage.
fn proven(
    moved: Move,
    proof: Proof,
    stage: fn(Proof) -> Stage,
    seen: &Observation<'_>,
    now: &Time,
) -> Result<(Move, Proof), Box<Next>> {
    let (moved, proof, verdict) = prove(moved, proof, seen, now);
    let effects = match verdict {
        Verdict::Proven => hold(&moved, seen, now),
        Verdict::Waits(effects) => Some(effects),
        Verdict::Overdue(explanation) => return Err(Box::new(fail(moved, stage(proof), seen, now, explanation))),
    };
    match effects {
        Some(effects) => Err(Box::new((Rollout::Forward(moved, stage(proof)), effects))),
        None => Ok((moved, proof)),
    }
}

/// The target is published, and workloads that take it by a restart are restarted.
fn restart(moved: Move, seen: &Observation<'_>, now: &Time) -> Next {
    if seen.published != Some(&moved.target) {
        let effects = Effects::waits(Reason::Publishing, format!("version {} is being published", moved.target), None);
        return (Rollout::Forward(moved, Stage::Restarting), effects);
    }
    let effects = match seen.restart {
        Restarts::Done => return current(moved, now),
        Restarts::Busy(message) => Effects::waits(Reason::Restarting, message, None),
        Restarts::Held(message) => Effects::held(Reason::NotRestarted, message),
        Restarts::Failed(message) => {
            return fail(moved, Stage::Restarting, seen, now, Reason::RestartFailed.explained(message));
        }
    };
    (Rollout::Forward(moved, Stage::Restarting), effects)
}

/// The target is proven.
fn current(Move { base, target, .. }: Move, now: &Time) -> Next {
    let message = format!("version {target} is current, {} was", base.current);
    let base = Base { current: target, previous: Some(base.current), revision: base.revision }.reassigned(now);
    let event = EventRecord::new(Reason::Current, message);
    (Rollout::Current(Idle { base, failure: None }), Effects::event(event))
}
