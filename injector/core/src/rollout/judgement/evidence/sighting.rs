//! What one observation shows of a pod.

use crate::rollout::Subject;
use crate::rollout::clock::{Millis, SteadyTime};

/// The time and the bounds of one observation.
pub(super) struct Pass<'a> {
    pub(super) number: u64,
    /// Whether this leader has not observed the pods before, or not for a while.
    pub(super) is_first: bool,
    /// Whether the trial of the target begins.
    pub(super) begins_trial: bool,
    pub(super) target: Option<&'a str>,
    /// The time when the target was last assigned to more pods, in seconds since 1970.
    pub(super) stepped_at: i64,
    /// The time that a pod must be healthy to count again.
    pub(super) watch_time: Millis,
    pub(super) now: SteadyTime,
    pub(super) now_seconds: i64,
}

/// One pod, as one observation finds it.
#[derive(Clone, Copy)]
pub(super) struct Sighting<'a> {
    pub(super) pass: &'a Pass<'a>,
    pub(super) pod: &'a Subject,
    /// Whether the target is assigned to the pod.
    pub(super) is_assigned: bool,
    /// Whether no earlier observation found the pod. A pod that was observed to appear is new: it counts when it was
    /// healthy for as long as a step is watched.
    pub(super) is_new: bool,
    /// Whether a container of the pod crashed since the last observation.
    pub(super) has_crashed: bool,
}

impl Sighting<'_> {
    /// Returns whether the pod has the target, and its health says nothing about it.
    pub(super) fn is_unaffected(&self) -> bool {
        self.is_assigned && self.pass.target.is_some_and(|target| self.pod.is_unaffected_by(target))
    }

    /// Returns whether the pod has the target, and a container has not shown in time that it took it.
    pub(super) fn lacks_proof(&self) -> bool {
        self.is_assigned && self.pass.target.is_some_and(|target| self.pod.lacks_proof_of(target))
    }
}
