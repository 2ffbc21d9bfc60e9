//! Analysis: requests the numbers that judge versions from Prometheus, and writes them into `RolloutAnalysis` objects.
//! `nudge_core` decides which numbers are requested, and draws the conclusions.
//!
//! The addresses come from users, so this part of Nudge is the most exposed. It therefore has its own process, and its
//! account may write the answers and little more.
// The crate computes with numbers that others send, so arithmetic must not overflow.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod analyses;
mod config_task;
mod credentials;
mod measurement;
mod prometheus_query;
mod round_answers;
mod run;

pub use analyses::Analyses;
pub use run::run;
