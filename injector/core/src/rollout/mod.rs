//! Which pod runs which version, and how pods are moved from one to another.
//!
//! [`Rollout`] is the state machine: [`Rollout::from_status`] reads it, [`next`] makes one transition, [`Rollout::into_status`] writes it.
//! Every replica of the hub computes a pod's version from the stored status alone ([`assigned_version`]).

mod assignment;
mod back;
mod batch;
mod blame;
mod clock;
mod effects;
#[cfg(test)]
mod exposure_tests;
mod forward;
mod hold;
mod idle;
mod next;
mod observation;
mod proof;
mod restart_counts;
mod same_content;
#[cfg(test)]
mod simulation;
mod state;
mod stored;
#[cfg(test)]
mod stored_tests;
mod subject;
#[cfg(test)]
mod tests;
mod waited_for;

pub use assignment::{assigned_version, newborn, to_publish, version_by_number};
pub use batch::ALL;
pub use effects::{Effects, Next};
pub use next::next;
pub use observation::{Observation, Restarts};
pub use restart_counts::RestartCounts;
pub use same_content::is_same;
pub use state::{Base, Cause, Idle, Move, Proof, Return, Rollout, Since, Stage};
pub use subject::{Subject, pod_number};
