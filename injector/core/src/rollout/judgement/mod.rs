//! What pods say about the version on trial: the harm that was observed, and the verdict that follows from it.

mod evidence;
mod harm;
mod newborn_verdict;
pub(super) mod probability;
mod rollout_analysis;
mod tally;
pub(super) mod verdict;
mod watch_time;

pub use evidence::Evidence;
pub(super) use rollout_analysis::{analysis_statuses, analysis_wait, judge_analyses, question};
pub(super) use tally::{Tally, judge_filter};
pub use verdict::describe_evidence;
pub(super) use verdict::{Verdict, evidence_status, is_expected, reach_verdict};
pub(super) use watch_time::step_watch;
