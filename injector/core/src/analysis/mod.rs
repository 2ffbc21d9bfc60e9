//! Judging a version by numbers of Prometheus: what is asked and of whom, which answers count, and what they say.
//!
//! The controller writes whose numbers it wants into a `RolloutAnalysis`, the role `analysis` asks and writes the answers there, and
//! [`judge`] says what follows. An answer counts only if all data behind it are of pods that ran the version.
// What others send is computed with: nothing overflows.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod answer;
mod check;
mod judge;
#[cfg(test)]
mod judge_tests;
mod outcome;
mod pace;
mod query;
mod reach;
mod rehearsal;

pub use answer::{AnswerError, number};
pub use check::{Fault, analysis_faults, server};
pub use judge::{Judgement, Memory, Names, Verdict, judge};
pub use pace::period;
pub use query::{MAX_PODS, fill, sample};
pub use reach::{LONGEST_REACH, ReachError, reach};
pub use rehearsal::{Rehearsal, is_answered, is_rehearsal, rehearsal, rehearsed};
