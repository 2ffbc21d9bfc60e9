//! The controllers: the shell around the decisions of [`crate::versions`]. Only the leader runs them.

mod baseline;
mod call;
mod content_key;
mod figures;
mod lease;
mod listing;
mod moving;
mod notes;
mod pruning;
mod publishing;
mod queue;
mod reconcile;
mod recycle;
mod recycle_pods;
mod refresh;
mod removal;
mod repair;
mod run;
mod warnings;

pub use call::{CallError, call};
pub use content_key::{ContentKeyError, content_key};
pub use figures::RolloutMetrics;
pub use lease::{Leadership, Lease, LeaseSettings};
pub use queue::Queue;
pub use reconcile::{Again, Controller};
pub use repair::{RepairMetrics, RepairSettings, repair};
pub use run::{ControllerMetrics, run};
pub use warnings::tell_warnings;
