//! The controllers: the shell around the decisions of `nudge-core`. Only the leader runs them.

mod baseline;
#[cfg(test)]
mod brake_tests;
mod controller;
mod metrics;
mod pruning;
mod publishing;
mod reconcile;
mod refresh;
mod removal;
mod repair;
mod restart;
mod restart_pods;
mod rollout;
mod run;
mod warnings;

pub use controller::Controller;
pub use metrics::RolloutMetrics;
pub use reconcile::Again;
pub use repair::{RepairMetrics, RepairSettings, repair};
pub use run::{ControllerMetrics, run};
pub use warnings::record_warnings;
