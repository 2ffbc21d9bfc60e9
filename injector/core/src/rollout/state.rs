//! The state of a rollout. Each variant holds only the facts of that state.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use nudge_api::{EvidenceStatus, RolloutFailure, Watch};

use super::Now;
use super::assignment::Thresholds;

/// A config's rollout.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant)] // there is one at a time
pub enum Rollout {
    /// The config has no current version yet.
    Initial {
        /// The revision of the assignments.
        revision: u64,
    },
    /// The config is as the spec says.
    Current(Idle),
    /// Nothing moves, since pods can't be moved to the requested version yet.
    Waiting(Idle),
    /// The move to the target is withheld before its beginning.
    NotBegun {
        /// The current version.
        idle: Idle,
        /// The version that pods would be moved to.
        target: String,
    },
    /// The requested version failed. It is tried again when something else was requested meanwhile, or when somebody
    /// requests it again.
    Failed {
        /// The current version.
        base: Base,
        /// The failure of the requested version.
        failure: RolloutFailure,
    },
    /// Pods are moved to the target.
    Forward(Transfer),
    /// Pods return to the current version.
    Back(Return),
}

/// The fields of every state that has a current version.
#[derive(Clone, Debug, PartialEq)]
pub struct Base {
    /// The version that is proven.
    pub current: String,
    /// The version that was current before.
    pub previous: Option<String>,
    /// The revision, which grows whenever the version assigned to any pod changes.
    pub revision: u64,
}

/// The state while nothing moves.
#[derive(Clone, Debug, PartialEq)]
pub struct Idle {
    /// The current version.
    pub base: Base,
    /// The version that was tried last and failed.
    pub failure: Option<RolloutFailure>,
}

/// The move of pods to a target.
#[derive(Clone, Debug, PartialEq)]
pub struct Transfer {
    /// The current version, which pods return to if the target fails.
    pub base: Base,
    /// The version that pods are moved to.
    pub target: String,
    /// The stage of the move.
    pub stage: Stage,
    /// The time when the move began.
    pub began_at: Time,
    /// The time when the target was last assigned to pods, or the stage began.
    pub progressed_at: MicroTime,
    /// The thresholds that decide the assignment of the target to pods.
    pub thresholds: Thresholds,
    /// The number of steps that went out.
    pub step: u32,
    /// The name of the last step.
    pub step_name: Option<String>,
    /// The time when the last step went out; `None` while the target is assigned to no pod.
    pub stepped_at: Option<Time>,
    /// The time that a step is watched.
    pub watch: Option<Watch>,
    /// The last evidence for and against the target.
    pub evidence: Option<EvidenceStatus>,
    /// The failure of the target that stops the move (`onFailure: Hold`).
    pub stopped_by: Option<RolloutFailure>,
}

impl Transfer {
    /// Returns a move that begins.
    pub(super) fn new(base: Base, target: &str, now: &Time) -> Self {
        Self {
            base,
            target: target.to_owned(),
            stage: Stage::Moving,
            began_at: now.clone(),
            progressed_at: MicroTime(now.0),
            thresholds: Thresholds::default(),
            step: 0,
            step_name: None,
            stepped_at: None,
            watch: None,
            evidence: None,
            stopped_by: None,
        }
    }

    /// Returns the move in the stage that begins now.
    pub(super) fn with_stage(self, stage: Stage, now: Now<'_>) -> Self {
        Self { stage, progressed_at: MicroTime(now.time.0), ..self }
    }
}

/// The stage of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The target is assigned to pods step by step.
    Moving,
    /// All pods run the target, which is watched for a while.
    Baking,
    /// The target is published, and workloads that take it by a restart are restarted.
    Restarting,
}

/// The return of pods to the current version.
#[derive(Clone, Debug, PartialEq)]
pub struct Return {
    /// The version that they return to.
    pub base: Base,
    /// The version that they leave.
    pub target: String,
    /// The reason why the pods return.
    pub cause: Cause,
    /// The time when the move, or the return to the previous version, began.
    pub began_at: Time,
    /// The time when the return last made progress.
    pub progressed_at: MicroTime,
    /// The time when workloads were first restarted with the target; `None` if they were not.
    pub workloads_restarted_at: Option<Time>,
}

/// The reason why pods return.
#[derive(Clone, Debug, PartialEq)]
pub enum Cause {
    /// The target is not requested any more. It may have failed before.
    Leaving(Option<RolloutFailure>),
    /// The previous version is requested, and is the current one again.
    Returning,
    /// The target failed.
    RollingBack(RolloutFailure),
}

impl Rollout {
    /// Returns the fields of a state that has a current version.
    pub fn base(&self) -> Option<&Base> {
        match self {
            Self::Initial { .. } => None,
            Self::Current(idle) | Self::Waiting(idle) | Self::NotBegun { idle, .. } => Some(&idle.base),
            Self::Failed { base, .. } => Some(base),
            Self::Forward(transfer) => Some(&transfer.base),
            Self::Back(back) => Some(&back.base),
        }
    }

    /// Returns the state for a requested version that pods can't be moved to.
    #[must_use]
    pub fn waiting(self) -> Self {
        match self {
            Self::Current(idle) | Self::NotBegun { idle, .. } => Self::Waiting(idle),
            Self::Failed { base, failure } => Self::Waiting(Idle { base, failure: Some(failure) }),
            other => other,
        }
    }
}

impl Base {
    /// Returns this base with the next revision, if any pod is assigned another version.
    pub(super) fn reassigned(self, now: &Time) -> Self {
        Self { revision: next_revision(self.revision, now), ..self }
    }
}

/// Returns the revision after `revision`. Revisions start from the time, so that they grow even if the status was lost:
/// an agent never takes a lower revision.
pub(super) fn next_revision(revision: u64, now: &Time) -> u64 {
    let millis = u64::try_from(now.0.as_millisecond()).unwrap_or(0);
    millis.max(revision + 1)
}
