//! Whether the hub works, as its Lease says: for how long reports wait in its replicas, and when it is away.

mod hub_away;
pub mod waiting_reports;

pub use hub_away::{HubAway, LeaseRenewals, Outage};
