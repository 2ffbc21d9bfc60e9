//! The records that become Events of the Kubernetes API.

use nudge_api::{Explanation, Reason};

/// The Event to write on a config or a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRecord {
    /// Whether somebody should act.
    pub warning: bool,
    /// The reason and the message.
    pub explanation: Explanation,
}

impl EventRecord {
    /// Returns an Event that is a warning if its reason needs somebody to act.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { warning: reason.facts().needs_action, explanation: reason.explained(message) }
    }

    /// Returns a warning, regardless of its reason.
    pub fn warning(reason: Reason, message: impl Into<String>) -> Self {
        Self { warning: true, explanation: reason.explained(message) }
    }
}
