//! Rollouts against the real API server, with agents as real processes that stand for the pods of two workloads.

#![allow(clippy::print_stderr, reason = "times and timelines are for a person who runs it by hand")]

mod blame;
mod checks;
mod handwritten;
mod holding;
mod hub_away;
mod judgement;
mod leader;
mod plain;
mod refused;
mod rollout_under_test;
mod stages;
mod unchanged;
mod unpublished;
mod walking;
