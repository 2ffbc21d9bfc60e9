//! Watches that keep the index up to date, and how much of it the server has confirmed.

mod follow;
mod metrics;
mod start_pace;
mod update_index;
mod watches;

pub use crate::watch_health::WatchHealth;
pub use follow::{FollowError, Unparsed, WatchChange, follow};
pub use metrics::WatchMetrics;
pub use watches::{ReadScope, WatchSettings, watch_cluster};
