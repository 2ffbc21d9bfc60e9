//! Which pod runs which version, and how pods are moved from one to another.
//!
//! [`Rollout`] is the state machine: [`Rollout::from_status`] reads it, [`next`] makes one transition, [`Rollout::into_status`] writes it.
//! Every replica of the hub computes a pod's version from the stored status alone ([`assigned_version`]).

mod acknowledgements;
mod assignment;
mod back;
#[cfg(test)]
mod calls_tests;
mod clock;
#[cfg(test)]
mod edited_tests;
mod effects;
mod evidence;
#[cfg(test)]
mod fault_tests;
mod forward;
#[cfg(test)]
mod handover_tests;
mod harm;
#[cfg(test)]
mod held_tests;
#[cfg(test)]
mod hub_away_tests;
mod idle;
#[cfg(test)]
mod in_place_tests;
#[cfg(test)]
mod invariant_tests;
mod measured;
#[cfg(test)]
mod measured_simulation_tests;
#[cfg(test)]
mod measured_tests;
#[cfg(test)]
mod memory_tests;
mod next;
mod observation;
mod plan;
mod probability;
#[cfg(test)]
mod refusal_tests;
mod release;
#[cfg(test)]
mod release_tests;
mod retry;
mod same_content;
mod state;
mod stored;
mod subject;
mod subjects;
#[cfg(test)]
mod test_scene;
#[cfg(test)]
#[path = "rollout_tests.rs"]
mod tests;
mod thresholds;
#[cfg(test)]
mod thresholds_tests;
mod verdict;
#[cfg(test)]
mod verdict_tests;
mod watch_time;
#[cfg(test)]
mod window_tests;
mod withheld;
#[cfg(test)]
mod withheld_tests;

pub use assignment::{assigned_version, newborn, to_publish, version_by_number};
pub use clock::{Millis, Now};
pub use effects::{Effects, Transition};
pub use evidence::Evidence;
pub use next::next;
pub use observation::{Neighbours, Observation, PublishAttempt, Restarts};
pub use plan::planned_steps;
pub use release::{MAX_RELEASES_BYTES, began, ended, fitting, recorded, summary};
pub use same_content::is_same;
pub use state::{Base, Cause, Idle, Move, Return, Rollout, Stage};
pub use subject::{JOBS, Subject, pod_number};
pub use subjects::Subjects;
pub use thresholds::{ALL, Thresholds};
pub use verdict::describe_evidence;
pub use withheld::Withheld;
