//! Versions that are judged by numbers: a real API server, a real Prometheus, agents as real processes, and the role
//! analysis with its own rights.

#![allow(clippy::print_stderr, reason = "times and numbers are for a person who runs it by hand")]

mod attacks;
mod forged;
mod load;
mod prometheus;
mod scene;
mod tls;
mod verdicts;
