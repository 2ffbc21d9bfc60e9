//! A version that is not wrong and may not go on: nobody has approved it, or it is not the time for it.
//!
//! It withholds the first step and each next one, and the publication. What was assigned is judged all the same, and goes back if it is bad.
//! Neither the way back nor an override waits, and once the target is published its workloads are restarted.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{Explanation, Reason, WithheldStatus};

use super::Effects;
use super::clock::Millis;

/// Why a version may not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withheld {
    /// Why.
    pub why: Explanation,
    /// When that may have changed although nothing is observed to change, by the steady clock.
    pub until: Option<Millis>,
    /// When that ends by itself, in whole seconds.
    pub ends: Option<Timestamp>,
    /// It went on until a moment ago, and an answer is under way that says whether it still may. It stops, and nothing new is said.
    pub unsaid: bool,
}

impl Withheld {
    /// Whether the first version of a config waits too where no pod runs any. Nothing runs that it could break, so the time of it does not matter. Policies that are
    /// not known may ask for approval, and nothing begins by a spec that can't be used.
    pub(super) fn holds_first(&self) -> bool {
        matches!(
            self.why.reason,
            Reason::AwaitingApproval | Reason::PoliciesUnknown | Reason::InvalidSpec | Reason::UnknownTimeZone
        )
    }

    /// It is held, and the progress deadline does not end that.
    pub(super) fn effects(&self) -> Effects {
        if self.unsaid {
            return Effects { look_again: self.until, ..Effects::default() };
        }
        let withheld = Some(WithheldStatus { reason: self.why.reason, until_time: self.ends.map(Time) });
        Effects { look_again: self.until, withheld, ..Effects::held(self.why.reason, self.why.message.clone()) }
    }
}
