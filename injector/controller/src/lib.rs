//! The controllers: the shell around the decisions of `nudge-core`. Only the leader runs them.
//!
//! `run/` is the loop of the leader. It reconciles a config (`reconcile/`) with the help of `approve/`, `baseline/`,
//! `measure/`, `restart/`, `publish/`, `followed_objects/` and `delete/`, and writes the result with `status/`.
//! `memory/` keeps the state that lasts between reconciles. `repair/` and `injection_warnings.rs` look after pods,
//! independently of configs.

mod approve;
mod baseline;
mod controller;
mod delete;
mod failure_cause;
#[cfg(test)]
mod fake_api_server;
mod followed_objects;
mod injection_warnings;
mod measure;
mod memory;
mod metrics;
mod publish;
mod reconcile;
mod repair;
mod restart;
mod run;
mod status;
mod work_item;

pub use baseline::take_over;
pub use controller::Controller;
pub use injection_warnings::record_warnings;
pub use metrics::{ControllerMetrics, RepairMetrics, RolloutMetrics};
pub use repair::{RepairSettings, repair};
pub use run::{follow_hub_lease, run};
pub use status::{keep_approval_statuses, keep_policy_statuses};
