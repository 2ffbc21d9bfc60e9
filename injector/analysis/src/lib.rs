//! Analysis: asks Prometheus for the numbers that versions are judged by, and writes them into `RolloutAnalysis`
//! objects. `nudge_core` decides what is asked, and what follows.
//!
//! The addresses come from users, so this is the most exposed part of Nudge: it has a process of its own, whose account
//! may write its answers and little more.
// Numbers that others send are computed with, so arithmetic must not overflow.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod analyses;
mod config_task;
mod credentials;
mod measurement;
mod prometheus_query;
mod round_answers;
mod shared;

pub use analyses::run;
pub use shared::Analyses;
