//! Approvals on a real API server: the approvals that count, their content, and the rules while the control plane is
//! away.

// What the tests share fails as they do.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod away;
mod commands;
mod counted;
mod many;
mod middle;
mod policy;
mod refused;
mod scene;
