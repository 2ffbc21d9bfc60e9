//! What pods say about the version on trial: the harm that was observed, and the verdict that follows from it.

mod evidence;
mod harm;
mod newborn_verdict;
pub(super) mod probability;
mod rollout_analysis;
mod tally;
pub(super) mod verdict;
mod watch_time;

use nudge_api::Explanation;

use super::clock::SteadyTime;

pub use evidence::Evidence;
pub(super) use rollout_analysis::{analysis_statuses, analysis_wait, judge_analyses, question};
pub(super) use tally::{Tally, judge_filter};
pub use verdict::describe_evidence;
pub(super) use verdict::{evidence_status, is_expected, reach_verdict};
pub(super) use watch_time::step_watch;

/// The verdict of the numbers.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::rollout) enum Verdict {
    /// The numbers are no evidence against the target.
    Clear,
    /// The numbers are too weak for a rollback, and too strong to continue.
    Inconclusive {
        message: String,
        /// The time when the numbers may be conclusive even if nothing changes.
        reconcile_at: Option<SteadyTime>,
        /// Whether this much harm is expected by chance: the healthy pods are watched meanwhile.
        expected: bool,
    },
    /// The target is bad.
    Bad(Explanation),
}
