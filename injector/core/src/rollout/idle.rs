//! Nothing moves: the beginning of a move, and what keeps it from beginning.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use nudge_api::Reason;

use super::clock::after;
use super::effects::Next;
use super::restart_counts::RestartCounts;
use super::state::{Base, Idle, Move, Proof, Rollout, Stage, next_revision};
use super::{Effects, Observation};
use crate::event_record::EventRecord;

/// How often the other config is looked at that this one waits for, in seconds.
const NEIGHBOUR_SECONDS: u32 = 2;

/// The first version of a config is current at once.
pub(super) fn first(revision: u64, seen: &Observation<'_>, now: &Time) -> Next {
    let current = seen.requested.to_owned();
    let message = format!("version {current} is current, the first one");
    let base = Base { current, previous: None, revision: next_revision(revision, now) };
    let event = EventRecord::new(Reason::Current, message);
    (Rollout::Current(Idle { base, failure: None }), Effects::event(event))
}

/// All pods run the requested version already.
pub(super) fn at_rest(idle: Idle, seen: &Observation<'_>) -> Rollout {
    let failure = idle.failure.filter(|failure| failure.generation == seen.generation);
    Rollout::Current(Idle { failure, ..idle })
}

/// Another version is requested: the move begins, unless something keeps it from beginning.
pub(super) fn begin(Idle { base, failure }: Idle, seen: &Observation<'_>, now: &Time) -> Next {
    let (current, requested) = (&base.current, seen.requested);
    let failed =
        |failure: &nudge_api::RolloutFailure| failure.version == requested && failure.generation == seen.generation;
    let failure = match failure {
        Some(failure) if failed(&failure) => {
            let message = format!(
                "version {requested} failed and {current} runs again: {}; set spec.current to a new version with a fix, or to \
                 {current}; any change of spec tries {requested} again",
                failure.message
            );
            return (Rollout::Failed(base, failure), Effects::held(Reason::Failed, message));
        }
        other => other,
    };
    if let Some(other) = seen.waiting_for {
        let message = format!("config {other}, which shares pods with this one, is being moved");
        let effects = Effects::waits(Reason::WaitingFor, message, Some(after(now.0, NEIGHBOUR_SECONDS)));
        return (Rollout::Waiting(Idle { base, failure }), effects);
    }
    if seen.spec.paused {
        return (Rollout::Paused(Idle { base, failure }, requested.to_owned()), paused(requested));
    }
    let count = seen.pods.len();
    let message = format!("moving {count} pods from version {current} to {requested}");
    let moved = Move {
        base,
        target: requested.to_owned(),
        began_at: now.clone(),
        progressed_at: MicroTime(now.0),
        groups: Vec::new(),
        skipped: Vec::new(),
        restarts: RestartCounts::default(),
        failure: None,
    };
    let event = EventRecord::new(Reason::Progressing, message);
    (Rollout::Forward(moved, Stage::Moving(Proof::default())), Effects::event(event))
}

/// A move to this version is paused.
pub(super) fn paused(version: &str) -> Effects {
    let message = format!("the move to version {version} is paused; set spec.rollout.paused to false");
    Effects::held(Reason::Paused, message)
}
