//! The rollout's transition: its state, what is observed, and the time in; the next state and what it asks for out.
//!
//! What the state is stored in is the status: a leader that takes over continues where the last one stopped. The evidence is this leader's own.
//! Each call makes at most one transition. One that changes nothing waits for an observation or for a time.

use super::effects::Transition;
use super::evidence::Evidence;
use super::state::{Idle, Return, Rollout};
use super::{Effects, Now, Observation, back, forward, idle};

/// Makes the next transition.
pub fn next(rollout: Rollout, evidence: &mut Evidence, seen: &Observation<'_>, now: Now<'_>) -> Transition {
    let previous = rollout.base().filter(|base| base.previous.as_deref() == Some(seen.requested));
    if let Some(base) = previous.cloned() {
        return back::return_to_previous(base, evidence, seen, now);
    }
    let was_current = matches!(rollout, Rollout::Current(_));
    let idle = match rollout {
        Rollout::Initial { revision } => return idle::first(revision, seen, now),
        Rollout::Forward(moved, stage) => return forward::advance(moved, stage, evidence, seen, now),
        // What can't wait does not wait for a return either.
        Rollout::Back(Return { base, target, .. }, _)
            if seen.at_once.is_some() && base.current != seen.requested && target != seen.requested =>
        {
            Idle { base, failure: None }
        }
        Rollout::Back(back, cause) => return back::advance(back, cause, evidence, seen, now),
        // The target was visible in the status, although no pod had it.
        Rollout::Held { idle: Idle { base, failure }, .. } if base.current == seen.requested => {
            Idle { base: base.reassigned(now.time), failure }
        }
        Rollout::Current(idle) | Rollout::Waiting(idle) | Rollout::Held { idle, .. } => idle,
        Rollout::Failed(base, failure) => Idle { base, failure: Some(failure) },
    };
    if idle.base.current == seen.requested {
        let (rollout, effects) = idle::at_rest(idle, evidence, seen, now);
        return (rollout, Effects { more: !was_current, ..effects });
    }
    idle::begin(idle, seen, now)
}
