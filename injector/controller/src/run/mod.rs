//! The loop of the leader, the events that queue configs, deletions of the remains of deleted configs, and the Lease of
//! the hubs.

mod events;
mod hub_lease_reads;
mod leader;
mod orphans;
#[cfg(test)]
mod orphans_tests;
mod unfinished_deletions;

pub use hub_lease_reads::follow_hub_lease;
pub use leader::run;
