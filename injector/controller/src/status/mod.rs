//! Writes of the statuses of configs, which assign versions to pods, of approvals and of policies.

mod approvals;
mod audit;
mod decision;
mod events;
mod policies;
mod write;

pub use approvals::keep_approval_statuses;
pub use policies::keep_policy_statuses;
