//! What a transition asks of the controller, beside the next state.

use nudge_api::{EvidenceStatus, Explanation, Reason, RolloutAnalysisSpec, WithheldStatus};

use super::Rollout;
use super::clock::SteadyTime;
use crate::event_record::EventRecord;

/// The outcome of a transition.
pub type Transition = (Rollout, Effects);

/// The effects that a transition asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// The Event to write.
    pub event: Option<EventRecord>,
    /// How the rollout continues.
    pub continuation: Continuation,
    /// The numbers of pods that were harmed soon after the version became current.
    pub suspect: Option<String>,
    /// What was known for and against the target at this transition, where one was judged.
    pub numbers: Option<EvidenceStatus>,
    /// The pods whose numbers are to be asked for.
    pub question: Option<RolloutAnalysisSpec>,
    /// When to reconcile again although nothing is observed to change.
    pub reconcile_at: Option<SteadyTime>,
}

/// How a rollout continues after a transition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Continuation {
    /// Nothing is waited for.
    #[default]
    AtRest,
    /// Another transition may follow at once.
    AtOnce,
    /// The rollout waits until something is observed, or for a time.
    Waiting(Explanation),
    /// The rollout is held until the numbers say more, or the progress deadline passes.
    Inconclusive(Explanation),
    /// The rollout is held until somebody acts.
    Held {
        /// What must be done, or must happen.
        why: Explanation,
        /// What keeps the version from going on although nothing is wrong with it.
        withheld: Option<WithheldStatus>,
    },
}

impl Continuation {
    /// Returns what the rollout waits for.
    pub fn explanation(&self) -> Option<&Explanation> {
        match self {
            Self::AtRest | Self::AtOnce => None,
            Self::Waiting(why) | Self::Inconclusive(why) | Self::Held { why, .. } => Some(why),
        }
    }

    /// Returns whether the rollout is held until somebody acts, so that no deadline ends the wait.
    pub fn is_held(&self) -> bool {
        matches!(self, Self::Held { .. })
    }

    /// Returns whether other configs may meanwhile move the pods that this one shares with them.
    pub fn yields(&self) -> bool {
        self.is_held() || self.explanation().is_some_and(|why| why.reason == Reason::WaitingFor)
    }
}

impl From<Continuation> for Effects {
    fn from(continuation: Continuation) -> Self {
        Self { continuation, ..Self::default() }
    }
}

impl Effects {
    /// Returns the effects of a rollout that is held until somebody acts.
    pub(super) fn hold(reason: Reason, message: impl Into<String>) -> Self {
        Continuation::Held { why: reason.explained(message), withheld: None }.into()
    }

    /// Returns the effects of a rollout that waits until something is observed, or for a time.
    pub(super) fn wait(reason: Reason, message: impl Into<String>, reconcile_at: Option<SteadyTime>) -> Self {
        Self { reconcile_at, ..Continuation::Waiting(reason.explained(message)).into() }
    }

    /// Returns the effects of a transition that another one follows at once, after this Event.
    pub(super) fn event(event: EventRecord) -> Self {
        Self { event: Some(event), ..Continuation::AtOnce.into() }
    }

    /// Returns these effects with another pass at this time at the latest.
    pub(super) fn reconcile_by(self, time: Option<SteadyTime>) -> Self {
        Self { reconcile_at: self.reconcile_at.into_iter().chain(time).min(), ..self }
    }
}
