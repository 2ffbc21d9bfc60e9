//! Pods on a real API server: pods that Nudge is asked about, their fate, and the fate of pods that bypassed it.

// What the tests share fails as they do.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod admission;
mod audit;
mod away;
mod by_hand;
mod cookbook;
mod forged;
mod injecting_cluster;
mod repair;
mod warnings;
