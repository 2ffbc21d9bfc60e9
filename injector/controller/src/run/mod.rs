//! What runs the controllers while this replica leads: the loop of the leader, the events that queue configs, and the Lease of the hubs.

mod deleted_configs;
mod events;
mod hub_lease;
mod leader;
mod orphans;
#[cfg(test)]
mod orphans_tests;

pub use hub_lease::follow_hub_lease;
pub use leader::run;
