//! What a transition asks of the controller, beside the next state.

use nudge_api::{EvidenceStatus, Explanation, Reason, RolloutAnalysisSpec, WithheldStatus};

use super::Rollout;
use super::clock::Millis;
use crate::event_record::EventRecord;

/// The outcome of a transition.
pub type Transition = (Rollout, Effects);

/// The effects that a transition asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// The Event to write.
    pub event: Option<EventRecord>,
    /// What the rollout waits for.
    pub waits_for: Option<Explanation>,
    /// What keeps the version from going on although nothing is wrong with it.
    pub withheld: Option<WithheldStatus>,
    /// Whether the rollout is held until somebody acts.
    pub held: bool,
    /// Whether the rollout is held until the numbers say more, or the progress deadline passes.
    pub inconclusive: bool,
    /// The numbers of pods that were harmed soon after the version became current.
    pub suspect: Option<String>,
    /// What was known for and against the target at this look, where one was judged.
    pub numbers: Option<EvidenceStatus>,
    /// The pods whose numbers are to be asked for.
    pub question: Option<RolloutAnalysisSpec>,
    /// When to look again although nothing is observed to change, by the steady clock.
    pub look_again: Option<Millis>,
    /// Whether another transition may follow at once.
    pub more: bool,
}

impl Effects {
    /// Returns the effects of a rollout that is held until somebody acts.
    pub(super) fn held(reason: Reason, message: impl Into<String>) -> Self {
        Self { waits_for: Some(reason.explained(message)), held: true, ..Self::default() }
    }

    /// Returns the effects of a rollout that waits until something is observed, or for a time.
    pub(super) fn waits(reason: Reason, message: impl Into<String>, look_again: Option<Millis>) -> Self {
        Self { waits_for: Some(reason.explained(message)), look_again, ..Self::default() }
    }

    /// Returns the effects of a transition that another one follows at once.
    pub(super) fn run_again() -> Self {
        Self { more: true, ..Self::default() }
    }

    /// Returns the effects of a transition that another one follows at once, after this Event.
    pub(super) fn event(event: EventRecord) -> Self {
        Self { event: Some(event), ..Self::run_again() }
    }

    /// Returns these effects with a look at this time at the latest.
    pub(super) fn look_again_by(self, time: Option<Millis>) -> Self {
        Self { look_again: self.look_again.into_iter().chain(time).min(), ..self }
    }

    /// Returns whether the progress deadline ends the wait.
    pub(super) fn has_deadline(&self) -> bool {
        self.inconclusive || !self.held
    }

    /// Returns whether other configs may meanwhile move the pods that this one shares with them.
    pub fn yields(&self) -> bool {
        let waits = self.waits_for.as_ref().map(|why| why.reason);
        (self.held && !self.inconclusive) || waits == Some(Reason::WaitingFor)
    }
}
