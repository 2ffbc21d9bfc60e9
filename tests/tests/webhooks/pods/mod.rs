//! Pods on a real API server: which ones Nudge is asked about, what becomes of them, and of those that came past it.

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
