//! The versions that pods run, and the moves of pods from one version to another.
//!
//! [`Rollout`] is the state machine: [`Rollout::from_status`] reads it, [`next`] makes one transition,
//! [`Rollout::into_status`] writes it. Every replica of the hub computes a pod's version from the stored status alone
//! ([`assigned_version`]).

mod assignment;
mod back;
mod clock;
mod effects;
mod foreseen_steps;
mod forward;
mod gate;
mod idle;
mod judgement;
mod next;
mod observation;
mod record;
mod state;
mod stored;
#[cfg(test)]
mod tests;

pub use assignment::{
    ALL, Acknowledgement, Confirmation, Subject, Subjects, Thresholds, assigned_version, pod_number, version_by_number,
    version_for_new_pod, version_to_publish,
};
pub use clock::{Millis, Now, SteadyTime};
pub use effects::{Continuation, Effects, Transition};
pub use foreseen_steps::{MoveTime, PlannedStep, move_time, planned_at_once, planned_steps};
pub use gate::ClosedGate;
pub(crate) use gate::stops_first_version;
pub use judgement::{Evidence, describe_evidence};
pub use next::next;
pub use observation::{Neighbours, Observation, PublishAttempt, PublishFailure, Restarts};
pub use record::{
    MAX_RELEASES_BYTES, RolloutChange, fit_releases, is_same_content, new_releases, newly_ended_releases,
    record_release, release_summary,
};
pub use state::{Base, Cause, Idle, Return, Rollout, Stage, Transfer};
pub use stored::blocks_others;
