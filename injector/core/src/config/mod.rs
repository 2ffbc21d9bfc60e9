//! The decision about a config: its next status follows from its spec, versions, pods and approvals. The module
//! `versions` has the versions themselves.

#[cfg(test)]
mod any_spec_tests;
mod approval_status;
#[cfg(test)]
mod approval_tests;
mod conditions;
mod config_faults;
mod decide;
#[cfg(test)]
mod decide_tests;
mod foreseen_blocks;
#[cfg(test)]
mod gate_tests;
mod gated_version;
mod import;
mod measurable_condition;
mod move_predicates;
mod planned_move;
mod pod_counts;
mod reduced_status;
#[cfg(test)]
mod schema_tests;
mod target_version;
#[cfg(test)]
mod text_tests;
#[cfg(test)]
mod unseen_tests;
mod urgency;

pub use approval_status::{ApprovalContext, approval_status};
pub use config_faults::config_faults;
pub(crate) use config_faults::name_fault;
pub use decide::{Decision, Observed, decide};
pub use foreseen_blocks::{VersionCandidate, foreseen_blocks};
pub use gated_version::Provenance;
pub use import::{importing_status, is_importing};
pub use measurable_condition::wanted_rehearsal;
pub use move_predicates::{is_moved, lets_others_pass, may_begin};
pub use planned_move::PlannedMove;
pub use reduced_status::{StatusExtent, reduce_status};
pub use urgency::{is_brake, is_urgent};
