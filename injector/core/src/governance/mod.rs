//! The rules that keep a version from continuing although it has no fault: the rules of the config's spec and of the
//! cluster's policies, and the decisions of users.

mod approval;
mod approval_faults;
#[cfg(test)]
mod approval_tests;
mod approver_groups;
mod decision_limit;
mod digest;
mod effective;
#[cfg(test)]
mod effective_tests;
mod policies;
mod weakened_guards;
#[cfg(test)]
mod weakened_guards_tests;
#[cfg(test)]
mod window_tests;
mod windows;

pub(crate) use approval::has_run_out;
pub use approval::{
    ApprovalCandidate, Approvals, Authors, KnownRequester, Right, UserDecision, check_approvals, decision_command,
    explain_approval,
};
pub use approval_faults::approval_faults;
pub use approver_groups::{MAX_APPROVER_GROUPS_BYTES, read_approver_groups, sign_approver_groups};
pub use decision_limit::{PastDecision, TooManyDecisions, check_decision_count};
pub use digest::{sealed_digest, short_digest};
use effective::whole_seconds;
pub use effective::{Block, EffectiveRules, RuleOwner};
pub use policies::{MAX_POLICIES, Policies, PolicyReach, policy_faults, policy_status};
pub use weakened_guards::{describe_override, guard_fields, weakened_guards};
pub use windows::{Opening, WindowError, Windows, next_common_opening, window_faults};

use nudge_api::Reason;

use crate::rollout::{ClosedGate, Millis, Now};

/// The maximum time until a withheld version is checked again, because the clock may be set: an hour.
const MAX_RECHECK_MILLIS: Millis = 3_600_000;
/// The interval of reads of unknown policies: the right to read them may exist by then.
const UNKNOWN_POLICIES_RETRY_MILLIS: Millis = 30_000;

/// Returns why the rules withhold the requested version. A reason that needs somebody to act comes first.
pub fn rules_gate(rules: &EffectiveRules<'_>, now: Now<'_>) -> Option<ClosedGate> {
    let Block { why, until } = rules.block(now.time.0)?;
    let recheck_at = match why.reason {
        Reason::PoliciesUnknown => Some(now.steady + UNKNOWN_POLICIES_RETRY_MILLIS),
        _ => until.map(|until| now.steady + now.until(until).unwrap_or(0).min(MAX_RECHECK_MILLIS)),
    };
    Some(ClosedGate { why, recheck_at, ends_at: until.map(whole_seconds), keeps_message: false })
}
