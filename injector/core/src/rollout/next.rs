//! The rollout's transition: its state, the observation and the time go in; the next state and its requests come out.
//!
//! The status stores the state: a leader that takes over continues the work of the last leader. The evidence is this
//! leader's own. Each call makes at most one transition. A transition that changes nothing waits for an observation or
//! for a time.

use super::effects::Transition;
use super::judgement::Evidence;
use super::state::{Idle, Return, Rollout};
use super::{Continuation, Effects, Observation, back, forward, idle};

/// Makes the next transition.
pub fn next(rollout: Rollout, evidence: &mut Evidence, observation: &Observation<'_>) -> Transition {
    let now = observation.now;
    let previous = rollout.base().filter(|base| base.previous.as_deref() == Some(observation.requested));
    // Everybody who may write the object can edit the text, so unlike a request it waits for gates.
    let previous = previous.filter(|_| !observation.follows_text || observation.gate_effects().is_none());
    if let Some(base) = previous.cloned() {
        return back::return_to_previous(base, evidence, observation);
    }
    let was_current = matches!(rollout, Rollout::Current(_));
    let idle = match rollout {
        Rollout::Initial { revision } => return idle::make_first_current(revision, observation),
        Rollout::Forward(transfer) => return forward::advance(transfer, evidence, observation),
        // An override does not wait for a return either.
        Rollout::Back(Return { base, target, .. })
            if observation.override_reason.is_some()
                && base.current != observation.requested
                && target != observation.requested =>
        {
            Idle { base, failure: None }
        }
        Rollout::Back(back) => return back::advance(back, evidence, observation),
        // The target was visible in the status, although no pod had it.
        Rollout::NotBegun { idle: Idle { base, failure }, .. } if base.current == observation.requested => {
            Idle { base: base.reassigned(now.time), failure }
        }
        Rollout::Current(idle) | Rollout::Waiting(idle) | Rollout::NotBegun { idle, .. } => idle,
        Rollout::Failed { base, failure } => Idle { base, failure: Some(failure) },
    };
    if idle.base.current == observation.requested {
        let (rollout, effects) = idle::rest(idle, evidence, observation);
        let continuation = if was_current { Continuation::AtRest } else { Continuation::AtOnce };
        return (rollout, Effects { continuation, ..effects });
    }
    idle::begin(idle, observation)
}
