//! What a transition asks of the controller, beside the next state.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{Explanation, Reason};

use super::Rollout;
use crate::event_record::EventRecord;

/// The outcome of a transition.
pub type Next = (Rollout, Effects);

/// What a transition asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// The Event to write.
    pub event: Option<EventRecord>,
    /// What the rollout waits for.
    pub waits_for: Option<Explanation>,
    /// It is held until somebody acts.
    pub held: bool,
    /// When to look again although nothing is observed to change.
    pub look_again: Option<Time>,
    /// There may be another transition at once.
    pub more: bool,
}

impl Effects {
    /// Held until somebody acts.
    pub(super) fn held(reason: Reason, message: impl Into<String>) -> Self {
        Self { waits_for: Some(reason.explained(message)), held: true, ..Self::default() }
    }

    /// Waits until something is observed, or for a time.
    pub(super) fn waits(reason: Reason, message: impl Into<String>, look_again: Option<Time>) -> Self {
        Self { waits_for: Some(reason.explained(message)), look_again, ..Self::default() }
    }

    /// Another transition at once.
    pub(super) fn more() -> Self {
        Self { more: true, ..Self::default() }
    }

    /// Another transition at once, after this Event.
    pub(super) fn event(event: EventRecord) -> Self {
        Self { event: Some(event), ..Self::more() }
    }
}
