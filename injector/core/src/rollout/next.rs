//! The rollout's transition: its state, what is observed, and the time in; the next state and what it asks for out.
//!
//! Nothing is remembered but the status that the state is stored in: a leader that takes over continues where the last one stopped. Each
//! call makes at most one transition. One that changes nothing waits for an observation or for a time.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::effects::Next;
use super::state::{Idle, Rollout};
use super::{Effects, Observation, back, forward, idle};

/// Makes the next transition.
pub fn next(rollout: Rollout, seen: &Observation<'_>, now: &Time) -> Next {
    let previous = rollout.base().filter(|base| base.previous.as_deref() == Some(seen.requested));
    if let Some(base) = previous.cloned() {
        return back::return_to_previous(base, seen, now);
    }
    let was_current = matches!(rollout, Rollout::Current(_));
    let idle = match rollout {
        Rollout::Initial { revision } => return idle::first(revision, seen, now),
        Rollout::Forward(moved, stage) => return forward::advance(moved, stage, seen, now),
        Rollout::Back(back, cause) => return back::advance(back, cause, seen, now),
        // The target was visible in the status, although no pod had it.
        Rollout::Paused(Idle { base, failure }, _) if base.current == seen.requested => {
            Idle { base: base.reassigned(now), failure }
        }
        Rollout::Current(idle) | Rollout::Waiting(idle) | Rollout::Paused(idle, _) => idle,
        Rollout::Failed(base, failure) => Idle { base, failure: Some(failure) },
    };
    if idle.base.current == seen.requested {
        return (idle::at_rest(idle, seen), Effects { more: !was_current, ..Effects::default() });
    }
    idle::begin(idle, seen, now)
}
