//! The rollout as the status of a config stores it: read in one function and written in one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use nudge_api::{Phase, RolloutStage, RolloutStatus, VersionState, VersionedConfigStatus};

use super::Rollout;
use super::state::{Base, Cause, Idle, Move, Return, Stage};
use super::thresholds::Thresholds;

impl Rollout {
    /// The rollout of a status, which somebody may have edited: a field that its state does not have is ignored, and a time that is
    /// missing is `now`.
    pub fn from_status(status: &VersionedConfigStatus, now: &Time) -> Self {
        let stored = &status.rollout;
        let Some(current) = status.current.clone() else { return Self::Initial { revision: stored.revision } };
        let previous = status.previous.clone().filter(|previous| *previous != current);
        let target = status.target.clone().filter(|target| *target != current);
        let base = Base { current, previous, revision: stored.revision };
        match (stored.stage, target) {
            (Some(RolloutStage::Moving), Some(target)) => forward(base, target, stored, now, Stage::Moving),
            (Some(RolloutStage::Baking), Some(target)) => forward(base, target, stored, now, Stage::Baking),
            (Some(RolloutStage::Restarting), Some(target)) => forward(base, target, stored, now, Stage::Restarting),
            (Some(stage), Some(target)) => back(base, target, status, stage, now),
            (_, target) => idle(base, target, status),
        }
    }

    /// The status with this rollout: its current, previous and target version, its phase, the states of its versions, and how far pods are
    /// moved follow from it alone.
    pub fn into_status(self, mut status: VersionedConfigStatus) -> VersionedConfigStatus {
        let phase = self.phase();
        let (base, target, rollout) = match self {
            Self::Initial { revision } => (None, None, RolloutStatus { revision, ..RolloutStatus::default() }),
            Self::Current(Idle { base, failure }) | Self::Waiting(Idle { base, failure }) => {
                let rollout = RolloutStatus { failure, ..RolloutStatus::default() };
                (Some(base), None, rollout)
            }
            Self::Held(Idle { base, failure }, target) => {
                let rollout = RolloutStatus { failure, ..RolloutStatus::default() };
                (Some(base), Some(target), rollout)
            }
            Self::Failed(base, failure) => {
                let rollout = RolloutStatus { failure: Some(failure), ..RolloutStatus::default() };
                (Some(base), None, rollout)
            }
            Self::Forward(moved, stage) => {
                let (base, target) = (moved.base.clone(), moved.target.clone());
                (Some(base), Some(target), stored_move(moved, stage))
            }
            Self::Back(back, cause) => {
                let (base, target) = (back.base.clone(), back.target.clone());
                (Some(base), Some(target), stored_return(back, cause))
            }
        };
        status.rollout = rollout;
        if let Some(base) = base {
            status.rollout.revision = base.revision;
            (status.current, status.previous) = (Some(base.current), base.previous);
        } else {
            (status.current, status.previous) = (None, None);
        }
        (status.target, status.phase) = (target, phase);
        with_version_states(status)
    }

    /// The phase of the config.
    pub fn phase(&self) -> Phase {
        match self {
            Self::Initial { .. } | Self::Waiting(_) | Self::Held(..) => Phase::Waiting,
            Self::Current(_) => Phase::Current,
            Self::Forward(..) | Self::Back(_, Cause::Leaving(_)) => Phase::Progressing,
            Self::Back(_, Cause::Returning | Cause::RollingBack(_)) => Phase::RollingBack,
            Self::Failed(..) => Phase::Failed,
        }
    }
}

fn idle(base: Base, target: Option<String>, status: &VersionedConfigStatus) -> Rollout {
    let failure = status.rollout.failure.clone();
    let base = without_thresholds(base, &status.rollout);
    match (status.phase, target, failure) {
        (Phase::Failed, _, Some(failure)) => Rollout::Failed(base, failure),
        (Phase::Waiting, Some(target), failure) => Rollout::Held(Idle { base, failure }, target),
        (Phase::Current, _, failure) => Rollout::Current(Idle { base, failure }),
        (_, _, failure) => Rollout::Waiting(Idle { base, failure }),
    }
}

fn forward(base: Base, target: String, stored: &RolloutStatus, now: &Time, stage: Stage) -> Rollout {
    let failure = stored.failure.clone().filter(|failure| failure.version == target);
    let moved = Move {
        base,
        target,
        began_at: stored.began_at.clone().unwrap_or_else(|| now.clone()),
        progressed_at: stored.progressed_at.clone().unwrap_or(MicroTime(now.0)),
        thresholds: Thresholds::stored(stored),
        step: stored.step,
        stepped_at: stored.stepped_at.clone().unwrap_or_else(|| now.clone()),
        watch: stored.watch.clone(),
        evidence: stored.evidence.clone(),
        failure,
    };
    Rollout::Forward(moved, stage)
}

fn back(base: Base, target: String, status: &VersionedConfigStatus, stage: RolloutStage, now: &Time) -> Rollout {
    let stored = &status.rollout;
    let cause = match (stage, stored.failure.clone()) {
        (RolloutStage::RollingBack, Some(failure)) => Cause::RollingBack(failure),
        (RolloutStage::Leaving, _) if status.phase == Phase::RollingBack => Cause::Returning,
        (_, failure) => Cause::Leaving(failure),
    };
    let back = Return {
        base: without_thresholds(base, stored),
        target,
        began_at: stored.began_at.clone().unwrap_or_else(|| now.clone()),
        progressed_at: stored.progressed_at.clone().unwrap_or(MicroTime(now.0)),
        workloads_restarted_at: stored.workloads_restarted_at.clone(),
    };
    Rollout::Back(back, cause)
}

fn stored_move(moved: Move, stage: Stage) -> RolloutStatus {
    let stage = match stage {
        Stage::Moving => RolloutStage::Moving,
        Stage::Baking => RolloutStage::Baking,
        Stage::Restarting => RolloutStage::Restarting,
    };
    let Thresholds { config, workloads, selectors } = moved.thresholds;
    RolloutStatus {
        threshold: config,
        workloads,
        selectors,
        step: moved.step,
        stepped_at: (moved.step > 0 || config > 0).then_some(moved.stepped_at),
        stage: Some(stage),
        began_at: Some(moved.began_at),
        progressed_at: Some(moved.progressed_at),
        watch: moved.watch,
        evidence: moved.evidence,
        failure: moved.failure,
        ..RolloutStatus::default()
    }
}

fn stored_return(back: Return, cause: Cause) -> RolloutStatus {
    let (stage, failure) = match cause {
        Cause::Leaving(failure) => (RolloutStage::Leaving, failure),
        Cause::Returning => (RolloutStage::Leaving, None),
        Cause::RollingBack(failure) => (RolloutStage::RollingBack, Some(failure)),
    };
    RolloutStatus {
        stage: Some(stage),
        began_at: Some(back.began_at),
        workloads_restarted_at: back.workloads_restarted_at,
        progressed_at: Some(back.progressed_at),
        failure,
        ..RolloutStatus::default()
    }
}

/// Where no pod should be assigned the target, one that is has another assignment from now on.
fn without_thresholds(base: Base, stored: &RolloutStatus) -> Base {
    let any = stored.threshold > 0 || !stored.workloads.is_empty() || !stored.selectors.is_empty();
    Base { revision: base.revision + u64::from(any), ..base }
}

fn with_version_states(mut status: VersionedConfigStatus) -> VersionedConfigStatus {
    let failed = status.rollout.failure.as_ref().map(|failure| &failure.version);
    for version in &mut status.versions {
        let name = Some(&version.version);
        version.state = match version.state {
            VersionState::Broken => VersionState::Broken,
            _ if name == status.current.as_ref() => VersionState::Current,
            _ if name == failed => VersionState::Failed,
            _ if name == status.target.as_ref() => VersionState::Target,
            _ => VersionState::Available,
        };
    }
    status
}
