//! The guards of versions and configs against a real API server: what passes, what is refused, and the exact message.

// What the tests share fails as they do.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod clients;
mod configs;
mod forged;
mod guarded_cluster;
mod guards;
mod outage;
mod policies;
mod rates;
mod rollout_policies;
mod server;
mod tenants;
mod versions;
