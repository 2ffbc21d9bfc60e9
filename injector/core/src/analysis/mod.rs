//! The judgement of a version by numbers of Prometheus: the queries, the answers that count, and the verdict.
//!
//! The controller writes the pods whose numbers it needs into a `RolloutAnalysis`. The role `analysis` queries
//! Prometheus and writes the answers there. [`judge_round`] returns the verdict. An answer counts only if all its data
//! come from pods that ran the version.
// This module computes with numbers from outside, so nothing may overflow.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod analysis_faults;
mod answer;
mod judge;
#[cfg(test)]
mod judge_tests;
mod outcome;
mod period;
mod query;
mod reach;
mod rehearsal;

pub use analysis_faults::{AnalysisFault, analysis_faults, parse_server};
pub use answer::{AnswerError, parse_number};
pub use judge::{RoundJudgement, RoundMemory, RoundStart, RoundVerdict, VersionNames, judge_round};
pub use period::answer_period;
pub use query::{MAX_PODS, fill_query, sample_pods};
pub use reach::{MAX_REACH, ReachError, reach};
pub use rehearsal::{Rehearsal, is_answer_without_pods, is_rehearsal, rehearsal_question, rehearsal_result};
