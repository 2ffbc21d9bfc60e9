//! Watches that keep the index up to date, and how much of it the server has confirmed.

mod follow;
mod health;
mod watches;

pub use follow::{Change, FollowError, follow};
pub use health::WatchHealth;
pub use watches::{WatchSettings, watch_cluster};
