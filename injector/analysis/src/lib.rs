//! Analysis: asks Prometheus for the numbers that versions are judged by, and writes them down. What is asked, and what follows, is decided in
//! `nudge_core`.
//!
//! The addresses come from users, so this is the most exposed part of Nudge: it has a process of its own, whose account may write its answers
//! and little more.
// What others send is computed with: nothing overflows.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod ask;
mod credentials;
mod measure;
mod run;
mod series;
mod shared;
mod task;

pub use run::run;
pub use shared::Analyses;
