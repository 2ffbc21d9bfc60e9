//! The requests of a transition to the controller, in addition to the next state.

use nudge_api::{EvidenceStatus, Explanation, GateStatus, Reason, RolloutAnalysisSpec};

use super::Rollout;
use super::clock::SteadyTime;
use crate::event_record::EventRecord;

/// The outcome of a transition.
pub type Transition = (Rollout, Effects);

/// The effects that a transition requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// The Event to write.
    pub event: Option<EventRecord>,
    /// The continuation of the rollout.
    pub continuation: Continuation,
    /// The numbers of pods that were harmed soon after the version became current.
    pub suspicion: Option<String>,
    /// The evidence for and against the target at this transition, if a target was judged.
    pub evidence: Option<EvidenceStatus>,
    /// The pods whose numbers should be requested.
    pub question: Option<RolloutAnalysisSpec>,
    /// The time to reconcile again even if no change is observed.
    pub reconcile_at: Option<SteadyTime>,
}

/// The continuation of a rollout after a transition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Continuation {
    /// Nothing is waited for.
    #[default]
    AtRest,
    /// Another transition may follow at once.
    AtOnce,
    /// The rollout waits until something is observed, or for a time.
    Waiting(Explanation),
    /// The rollout stands still until the numbers are conclusive, or the progress deadline passes.
    Inconclusive(Explanation),
    /// The rollout is blocked until somebody acts.
    Blocked {
        /// The act or the event that the rollout needs.
        why: Explanation,
        /// The reason that keeps the version from continuing although nothing is wrong with it.
        gate: Option<GateStatus>,
    },
}

impl Continuation {
    /// Returns the explanation of the wait, if the rollout waits.
    pub fn explanation(&self) -> Option<&Explanation> {
        match self {
            Self::AtRest | Self::AtOnce => None,
            Self::Waiting(explanation) | Self::Inconclusive(explanation) | Self::Blocked { why: explanation, .. } => {
                Some(explanation)
            }
        }
    }

    /// Returns whether the rollout is blocked until somebody acts, so that no deadline ends the wait.
    pub fn is_blocked(&self) -> bool {
        matches!(self, Self::Blocked { .. })
    }

    /// Returns whether other configs may meanwhile move the pods that this one shares with them.
    pub fn yields(&self) -> bool {
        self.is_blocked() || self.explanation().is_some_and(|explanation| explanation.reason == Reason::WaitingFor)
    }
}

impl From<Continuation> for Effects {
    fn from(continuation: Continuation) -> Self {
        Self { continuation, ..Self::default() }
    }
}

impl Effects {
    /// Returns the effects of a rollout that is blocked until somebody acts.
    pub(super) fn blocked(reason: Reason, message: impl Into<String>) -> Self {
        Continuation::Blocked { why: reason.explained(message), gate: None }.into()
    }

    /// Returns the effects of a rollout that waits until something is observed, or for a time.
    pub(super) fn wait(reason: Reason, message: impl Into<String>, reconcile_at: Option<SteadyTime>) -> Self {
        Self { reconcile_at, ..Continuation::Waiting(reason.explained(message)).into() }
    }

    /// Returns the effects of a transition that another one follows at once, after this Event.
    pub(super) fn event(event: EventRecord) -> Self {
        Self { event: Some(event), ..Continuation::AtOnce.into() }
    }

    /// Returns the effects with another pass at `time` at the latest.
    pub(super) fn reconcile_by(self, time: Option<SteadyTime>) -> Self {
        Self { reconcile_at: self.reconcile_at.into_iter().chain(time).min(), ..self }
    }
}
