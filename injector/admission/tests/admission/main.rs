//! The guards of versions and configs against a real API server: allowed requests, refused requests, and the exact
//! messages.

// The shared helpers fail as the tests do.
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
