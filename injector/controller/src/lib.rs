//! The controllers: the shell around the decisions of `nudge-core`. Only the leader runs them.

mod analysis;
mod approval_status;
mod approvals;
mod approvers;
mod asked;
mod audit;
mod baseline;
#[cfg(test)]
mod brake_tests;
mod cause;
mod chores;
mod controller;
mod counting;
mod gate;
mod judging;
#[cfg(test)]
mod judging_tests;
mod line;
mod listings;
mod locked;
#[cfg(test)]
mod look_tests;
mod memories;
mod metrics;
mod outdated;
#[cfg(test)]
mod played;
mod policy_status;
mod pruning;
mod publish;
mod publish_memory;
mod reconcile;
mod refused;
mod rehearsals;
mod removal;
mod repair;
mod restart;
mod restart_pods;
mod restarting;
mod rollout;
mod run;
#[cfg(test)]
mod side_calls_tests;
mod status_write;
mod turns;
mod warnings;

pub use approval_status::keep_approval_statuses;
pub use controller::Controller;
pub use line::follow_line;
pub use metrics::RolloutMetrics;
pub use policy_status::keep_policy_statuses;
pub use reconcile::Again;
pub use repair::{RepairMetrics, RepairSettings, repair};
pub use run::{ControllerMetrics, run};
pub use warnings::record_warnings;
