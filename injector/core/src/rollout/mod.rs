//! The versions that pods run, and the moves of pods from one version to another.
//!
//! [`Rollout`] is the state machine: [`Rollout::from_status`] reads it, [`next`] makes one transition,
//! [`Rollout::into_status`] writes it. Every replica of the hub computes a pod's version from the stored status alone
//! ([`assigned_version`]).

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
mod rollout_analysis;
#[cfg(test)]
mod rollout_analysis_simulation_tests;
#[cfg(test)]
mod rollout_analysis_tests;
mod same_content;
mod state;
mod stored;
mod subject;
mod subjects;
mod tally;
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

pub use assignment::{assigned_version, version_by_number, version_for_new_pod, version_to_publish};
pub use clock::{Millis, Now, SteadyTime};
pub use effects::{Continuation, Effects, Transition};
pub use evidence::Evidence;
pub use next::next;
pub use observation::{Neighbours, Observation, PublishAttempt, PublishFailure, Restarts};
pub use plan::planned_steps;
pub use release::{
    MAX_RELEASES_BYTES, fit_releases, new_releases, newly_ended_releases, record_release, release_summary,
};
pub use same_content::is_same_content;
pub use state::{Base, Cause, Idle, Return, Rollout, Stage, Transfer};
pub use subject::{JOBS, Subject, pod_number};
pub use subjects::Subjects;
pub use thresholds::{ALL, Thresholds};
pub use verdict::describe_evidence;
pub use withheld::Withheld;
