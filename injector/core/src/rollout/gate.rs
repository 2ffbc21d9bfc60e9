//! A version that may not continue although nothing is wrong with it: it is not approved, or it is not the time for it.
//!
//! Each step and the publication are withheld. A version that is assigned to pods is still judged, and rolled back if
//! it is bad. Neither the way back nor an override waits, and once the target is published its workloads are restarted.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{Explanation, GateStatus, Reason};

use super::clock::SteadyTime;
use super::{Continuation, Effects};

/// A gate that a version may not pass: approval, windows, a hold, the pace of texts, or an invalid spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedGate {
    /// The reason and the message.
    pub why: Explanation,
    /// The time when the reason may have changed even if no change is observed.
    pub recheck_at: Option<SteadyTime>,
    /// The time when the wait ends by itself, in whole seconds.
    pub ends_at: Option<Timestamp>,
    /// Whether the version continued until a moment ago, and the answer whether it still may is under way. The rollout
    /// stops, and its message stays.
    pub keeps_message: bool,
}

/// Returns whether even the first version of a config waits because of this reason while no pod runs any version.
pub(crate) fn stops_first_version(reason: Reason) -> bool {
    matches!(reason, Reason::AwaitingApproval | Reason::PoliciesUnknown | Reason::InvalidSpec | Reason::UnknownTimeZone)
}

impl ClosedGate {
    /// Returns whether even the first version of a config waits while no pod runs any version. That version could break
    /// nothing, so the time does not matter. But unknown policies may require approval, and nothing begins with an
    /// unusable spec.
    pub(super) fn stops_first_version(&self) -> bool {
        stops_first_version(self.why.reason)
    }

    /// Returns the effects of a rollout at a closed gate, which the progress deadline does not end.
    pub(super) fn effects(&self) -> Effects {
        if self.keeps_message {
            return Effects { reconcile_at: self.recheck_at, ..Effects::default() };
        }
        let gate = Some(GateStatus { reason: self.why.reason, until_time: self.ends_at.map(Time) });
        Effects { reconcile_at: self.recheck_at, ..Continuation::Blocked { why: self.why.clone(), gate }.into() }
    }
}
