//! A version that is not wrong and may not go on: it is not approved, or it is not the time for it.
//!
//! Each step and the publication are withheld. A version that is assigned to pods is judged all the same, and goes back
//! if it is bad. Neither the way back nor an override waits, and once the target is published its workloads are
//! restarted.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{Explanation, Reason, WithheldStatus};

use super::clock::SteadyTime;
use super::{Continuation, Effects};

/// A version that may not go on, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withheld {
    /// The reason and the message.
    pub why: Explanation,
    /// When the reason may have changed although nothing is observed to change.
    pub until: Option<SteadyTime>,
    /// When the wait ends by itself, in whole seconds.
    pub ends: Option<Timestamp>,
    /// Whether the version went on until a moment ago, and an answer is under way that says whether it still may. The
    /// rollout stops, and its message stays.
    pub unsaid: bool,
}

impl Withheld {
    /// Returns whether the first version of a config waits too where no pod runs any version. Nothing runs that it
    /// could break, so the time does not matter. Policies that are not known may ask for approval, and nothing begins
    /// by a spec that can't be used.
    pub(super) fn holds_first(&self) -> bool {
        matches!(
            self.why.reason,
            Reason::AwaitingApproval | Reason::PoliciesUnknown | Reason::InvalidSpec | Reason::UnknownTimeZone
        )
    }

    /// Returns the effects of a rollout that is held, which the progress deadline does not end.
    pub(super) fn effects(&self) -> Effects {
        if self.unsaid {
            return Effects { reconcile_at: self.until, ..Effects::default() };
        }
        let withheld = Some(WithheldStatus { reason: self.why.reason, until_time: self.ends.map(Time) });
        Effects { reconcile_at: self.until, ..Continuation::Held { why: self.why.clone(), withheld }.into() }
    }
}
