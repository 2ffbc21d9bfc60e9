//! The rules that keep a version from going on although nothing is wrong with it: by the spec of its config, the policies of the cluster and the
//! decisions of users.

mod approval;
mod approval_faults;
#[cfg(test)]
mod approval_tests;
mod approver_groups;
mod bound;
mod digest;
mod effective;
#[cfg(test)]
mod effective_tests;
mod guards;
#[cfg(test)]
mod guards_tests;
mod policies;
#[cfg(test)]
mod window_tests;
mod windows;

pub use approval::{Approvals, Asker, Authors, Candidate, Given, approval_counts, approved, deciding_command};
pub use approval_faults::approval_faults;
pub use approver_groups::{APPROVER_GROUPS_BYTES, approver_groups, groups_of};
pub use bound::{Made, NoRoom, check_room};
pub use digest::{sealed_digest, short_digest};
use effective::whole_seconds;
pub use effective::{Blocked, Effective, RuleOwner};
pub use guards::{guards, overrides, weakened};
pub use policies::{MOST_POLICIES, Policies, PolicyReach, policy_faults, policy_status};
pub use windows::{Opening, WindowError, Windows, next_common_opening, window_faults};

use nudge_api::Reason;

use crate::rollout::{Millis, Now, Withheld};

/// When to look again at the latest, because the time of day may be set anew: an hour.
const MAX_RECHECK_INTERVAL: Millis = 3_600_000;
/// When to look again where policies are not known: the right to read them may be there.
const UNKNOWN_POLICIES_RETRY_MILLIS: Millis = 30_000;

/// Returns why the version that is requested may not go on, if it may not. A reason that needs somebody to act comes first.
pub fn withheld(rules: &Effective<'_>, now: Now<'_>) -> Option<Withheld> {
    let Blocked { why, until } = rules.blocked(now.time.0)?;
    let again = match why.reason {
        Reason::PoliciesUnknown => Some(now.steady + UNKNOWN_POLICIES_RETRY_MILLIS),
        _ => until.map(|until| now.steady + now.until(until).unwrap_or(0).min(MAX_RECHECK_INTERVAL)),
    };
    Some(Withheld { why, until: again, ends: until.map(whole_seconds), unsaid: false })
}
