//! The return to the current version: from a target that failed, or that is not requested any more.

use std::collections::HashSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use nudge_api::{Explanation, OnFailure, Reason, RolloutFailure, SkippedPod};

use super::batch::is_assigned;
use super::clock::after;
use super::effects::Next;
use super::state::{Base, Cause, Idle, Move, Return, Rollout, Stage};
use super::waited_for::present;
use super::{Effects, Observation, Restarts, Subject};
use crate::event_record::EventRecord;

/// The message while a move that failed is held.
pub(super) fn stands_still(message: &str) -> String {
    format!(
        "{message}; the move stands still (onFailure: Pause): set spec.current to another version, or onFailure to Rollback"
    )
}

/// The target is bad: every pod returns, or the move stands still, as the spec says.
pub(super) fn fail(
    moved: Move,
    stage: Stage,
    seen: &Observation<'_>,
    now: &Time,
    Explanation { reason, message }: Explanation,
) -> Next {
    let failure =
        RolloutFailure { version: moved.target.clone(), generation: seen.generation, reason, message: message.clone() };
    if seen.spec.on_failure == OnFailure::Pause {
        let message = stands_still(&message);
        let event = Some(EventRecord::new(Reason::Failed, message.clone()));
        let effects = Effects { event, ..Effects::held(Reason::Failed, message) };
        return (Rollout::Forward(Move { failure: Some(failure), ..moved }, stage), effects);
    }
    let back = turn_back(moved, &stage, seen, now);
    let message = format!("{message}; every pod returns to version {}", back.base.current);
    let event = EventRecord::warning(Reason::RollingBack, message);
    (Rollout::Back(back, Cause::RollingBack(failure)), Effects::event(event))
}

/// Another version is requested before the target is current.
pub(super) fn begin_leaving(mut moved: Move, stage: &Stage, seen: &Observation<'_>, now: &Time) -> Next {
    let failure = moved.failure.take();
    let back = turn_back(moved, stage, seen, now);
    let (target, current) = (&back.target, &back.base.current);
    let message = format!("version {target} is not requested any more; pods return to {current}");
    let event = EventRecord::new(Reason::Leaving, message);
    (Rollout::Back(back, Cause::Leaving(failure)), Effects::event(event))
}

/// The current version is assigned to every pod again.
fn turn_back(moved: Move, stage: &Stage, seen: &Observation<'_>, now: &Time) -> Return {
    let restarted = *stage == Stage::Restarting;
    Return {
        base: moved.base.reassigned(now),
        target: moved.target,
        began_at: moved.began_at,
        progressed_at: MicroTime(now.0),
        workloads_restarted_at: restarted.then_some(Time(moved.progressed_at.0)),
        // Only pods that have the target leave something, and only those that can be reached are waited for.
        skipped: unreachable(seen, |pod| is_assigned(&moved.groups, pod)),
    }
}

/// The previous version is requested: it is current again at once, and one write assigns it to every pod. The version that was current is
/// not the previous one then: to return to it is a rollout like any other.
///
/// This is a brake. It does not depend on healthy pods, and waits neither for a pause to end nor for another config.
pub(super) fn return_to_previous(base: Base, seen: &Observation<'_>, now: &Time) -> Next {
    let Base { current: from, revision, .. } = base;
    let base = Base { current: seen.requested.to_owned(), previous: None, revision }.reassigned(now);
    let message = format!("version {} is requested again; every pod returns to it from {from}", base.current);
    let back = Return {
        base,
        target: from,
        began_at: now.clone(),
        progressed_at: MicroTime(now.0),
        workloads_restarted_at: Some(seen.current_since.unwrap_or(now).clone()),
        // Some pods may run the target of a move, the others run what is left.
        skipped: unreachable(seen, |_| true),
    };
    (Rollout::Back(back, Cause::Returning), Effects::event(EventRecord::warning(Reason::RollingBack, message)))
}

fn unreachable(seen: &Observation<'_>, leaves: impl Fn(&Subject) -> bool) -> Vec<SkippedPod> {
    let leaving = seen.pods.iter().filter(|pod| leaves(pod));
    leaving.filter_map(|pod| Some(pod.skipped(pod.unreachable()?, true))).collect()
}

/// One transition on the way back: once everything has returned, nothing moves any more.
pub(super) fn advance(back: Return, cause: Cause, seen: &Observation<'_>, now: &Time) -> Next {
    let (back, effects) = remaining(back, seen, now);
    if let Some(effects) = effects {
        return (Rollout::Back(back, cause), effects);
    }
    let base = back.base.reassigned(now);
    match cause {
        Cause::Leaving(failure) => (Rollout::Waiting(Idle { base, failure }), Effects::more()),
        Cause::Returning => (Rollout::Waiting(Idle { base, failure: None }), Effects::more()),
        Cause::RollingBack(failure) => {
            let message = format!("every pod runs version {} again: {}", base.current, failure.message);
            (Rollout::Failed(base, failure), Effects::event(EventRecord::new(Reason::Failed, message)))
        }
    }
}

/// What is still to be waited for: pods, the published ConfigMap, workloads that were restarted. A workload that did not become ready with
/// the good version either is not waited for; the condition `Restarted` names it.
fn remaining(back: Return, seen: &Observation<'_>, now: &Time) -> (Return, Option<Effects>) {
    // Pods that are overdue are left behind. What is known of pods that are gone is dropped while others are waited for.
    let back = Return { skipped: present(back.skipped, seen), ..back };
    let current = &back.base.current;
    let deadline = after(back.progressed_at.0, seen.spec.progress_deadline_seconds);
    let skipped: HashSet<&str> = back.skipped.iter().map(|skipped| skipped.uid.as_str()).collect();
    let away = |pod: &&Subject| !skipped.contains(pod.uid.as_str()) && is_away(&back, pod);
    let away = seen.pods.iter().filter(away).count();
    let effects = if away > 0 && now.0 < deadline.0 {
        let message = format!("{away} pods do not run version {current} again yet");
        Some(Effects::waits(Reason::RollingBack, message, Some(deadline)))
    } else if seen.published != Some(current) {
        Some(Effects::waits(Reason::Publishing, format!("version {current} is being published again"), None))
    } else if let Restarts::Busy(message) = seen.restart {
        Some(Effects::waits(Reason::Restarting, message, None))
    } else {
        None
    };
    (back, effects)
}

/// Whether the pod still runs something else than the current version, as far as it can say.
fn is_away(back: &Return, pod: &Subject) -> bool {
    let runs = pod.runs.as_deref();
    runs == Some(&back.target) || (pod.in_contact && runs != Some(&back.base.current))
}
