//! The versions that pods run, and the moves of pods from one version to another.
//!
//! [`Rollout`] is the state machine: [`Rollout::from_status`] reads it, [`next`] makes one transition,
//! [`Rollout::into_status`] writes it. Every replica of the hub computes a pod's version from the stored status alone
//! ([`assigned_version`]).

mod assignment;
mod back;
mod clock;
mod effects;
mod evidence;
mod failed_version;
mod forward;
mod harm;
mod idle;
mod next;
mod observation;
mod plan;
mod probability;
mod release;
mod rollout_analysis;
mod same_content;
mod state;
mod stored;
mod subject;
mod subjects;
mod tally;
#[cfg(test)]
mod tests;
mod thresholds;
mod verdict;
mod watch_time;
mod withheld;

pub use assignment::{assigned_version, version_by_number, version_for_new_pod, version_to_publish};
pub use clock::{Millis, Now, SteadyTime};
pub use effects::{Continuation, Effects, Transition};
pub use evidence::Evidence;
pub use next::next;
pub use observation::{Neighbours, Observation, PublishAttempt, PublishFailure, Restarts};
pub use plan::{MoveTime, PlannedStep, move_time, planned_at_once, planned_steps};
pub use release::{
    MAX_RELEASES_BYTES, fit_releases, new_releases, newly_ended_releases, record_release, release_summary,
};
pub use same_content::is_same_content;
pub use state::{Base, Cause, Idle, Return, Rollout, Stage, Transfer};
pub use stored::holds_others_up;
pub use subject::{Acknowledgement, Confirmation, Subject, pod_number};
pub use subjects::Subjects;
pub use thresholds::{ALL, Thresholds};
pub use verdict::describe_evidence;
pub use withheld::Withheld;
pub(crate) use withheld::holds_first;
