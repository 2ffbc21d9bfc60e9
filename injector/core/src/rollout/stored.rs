//! The rollout as the status of a config stores it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use nudge_api::{ConfigState, InternalStatus, RolloutStage, RolloutStatus, VersionState, VersionedConfigStatus};

use super::Rollout;
use super::assignment::Thresholds;
use super::state::{Base, Cause, Idle, Return, Stage, Transfer};

impl Rollout {
    /// Reads the rollout of a status. Somebody may have edited the status: a field that does not belong to its state is
    /// ignored, and a missing time is `now`.
    pub fn from_status(status: &VersionedConfigStatus, now: &Time) -> Self {
        let revision = status.internal.revision;
        let Some(current) = status.current_version.clone() else { return Self::Initial { revision } };
        let previous = status.previous_version.clone().filter(|previous| *previous != current);
        let target = status.target_version.clone().filter(|target| *target != current);
        let base = Base { current, previous, revision };
        match (status.rollout.stage, target) {
            (Some(RolloutStage::Moving), Some(target)) => forward(base, target, status, now, Stage::Moving),
            (Some(RolloutStage::Baking), Some(target)) => forward(base, target, status, now, Stage::Baking),
            (Some(RolloutStage::Restarting), Some(target)) => forward(base, target, status, now, Stage::Restarting),
            (Some(stage), Some(target)) => back(base, target, status, stage, now),
            (_, target) => idle(base, target, status),
        }
    }

    /// Returns the status with this rollout: its current, previous and target version, the states of its versions, and
    /// how far pods are moved follow from the rollout alone.
    pub fn into_status(self, mut status: VersionedConfigStatus) -> VersionedConfigStatus {
        let InternalStatus { identity, background, retired, rehearsed, text, readers, written_back, .. } =
            std::mem::take(&mut status.internal);
        status.internal = InternalStatus {
            identity,
            background,
            retired,
            rehearsed,
            text,
            readers,
            written_back,
            ..InternalStatus::default()
        };
        let still = |failure| RolloutStatus { failure, ..RolloutStatus::default() };
        let base = self.base().cloned();
        let (target, rollout) = match self {
            Self::Initial { revision } => {
                status.internal.revision = revision;
                (None, RolloutStatus::default())
            }
            Self::Current(idle) | Self::Waiting(idle) => (None, still(idle.failure)),
            Self::NotBegun { idle, target } => (Some(target), still(idle.failure)),
            Self::Failed { failure, .. } => (None, still(Some(failure))),
            Self::Forward(transfer) => (Some(transfer.target.clone()), stored_transfer(transfer, &mut status.internal)),
            Self::Back(back) => (Some(back.target.clone()), stored_return(back, &mut status.internal)),
        };
        status.rollout = rollout;
        if let Some(base) = &base {
            status.internal.revision = base.revision;
        }
        status.previous_version = base.as_ref().and_then(|base| base.previous.clone());
        status.current_version = base.map(|base| base.current);
        status.target_version = target;
        with_version_states(status)
    }
}

/// Returns whether the config is being moved, and keeps others waiting.
pub fn blocks_others(status: &VersionedConfigStatus) -> bool {
    status.rollout.stage.is_some() && !status.internal.yields
}

fn idle(base: Base, target: Option<String>, status: &VersionedConfigStatus) -> Rollout {
    let failure = status.rollout.failure.clone();
    let base = without_thresholds(base, &status.internal);
    match (status.state(), target, failure) {
        (ConfigState::Failed, _, Some(failure)) => Rollout::Failed { base, failure },
        (_, Some(target), failure) => Rollout::NotBegun { idle: Idle { base, failure }, target },
        (ConfigState::Current, None, failure) => Rollout::Current(Idle { base, failure }),
        (_, None, failure) => Rollout::Waiting(Idle { base, failure }),
    }
}

fn forward(base: Base, target: String, status: &VersionedConfigStatus, now: &Time, stage: Stage) -> Rollout {
    let stored = &status.rollout;
    let failure = stored.failure.clone().filter(|failure| failure.version == target);
    let has_stepped = stored.step > 0 || status.internal.threshold > 0;
    Rollout::Forward(Transfer {
        base,
        target,
        stage,
        began_at: stored.start_time.clone().unwrap_or_else(|| now.clone()),
        progressed_at: stored.progress_time.clone().unwrap_or(MicroTime(now.0)),
        thresholds: Thresholds::from_status(&status.internal),
        step: stored.step,
        step_name: stored.step_name.clone(),
        stepped_at: has_stepped.then(|| stored.step_time.as_ref().unwrap_or(now).clone()),
        watch: stored.watch.clone(),
        evidence: stored.evidence.clone(),
        stopped_by: failure,
    })
}

fn back(base: Base, target: String, status: &VersionedConfigStatus, stage: RolloutStage, now: &Time) -> Rollout {
    let stored = &status.rollout;
    let cause = match (stage, stored.failure.clone()) {
        (RolloutStage::RollingBack, Some(failure)) => Cause::RollingBack(failure),
        (RolloutStage::Returning, _) => Cause::Returning,
        (_, failure) => Cause::Leaving(failure),
    };
    Rollout::Back(Return {
        base: without_thresholds(base, &status.internal),
        target,
        cause,
        began_at: stored.start_time.clone().unwrap_or_else(|| now.clone()),
        progressed_at: stored.progress_time.clone().unwrap_or(MicroTime(now.0)),
        workloads_restarted_at: status.internal.workloads_restart_time.clone(),
    })
}

fn stored_transfer(transfer: Transfer, internal: &mut InternalStatus) -> RolloutStatus {
    let stage = match transfer.stage {
        Stage::Moving => RolloutStage::Moving,
        Stage::Baking => RolloutStage::Baking,
        Stage::Restarting => RolloutStage::Restarting,
    };
    let Thresholds { config, workloads, selectors } = transfer.thresholds;
    (internal.threshold, internal.workloads, internal.selectors) = (config, workloads, selectors);
    RolloutStatus {
        step: transfer.step,
        step_name: transfer.step_name,
        step_time: transfer.stepped_at,
        stage: Some(stage),
        start_time: Some(transfer.began_at),
        progress_time: Some(transfer.progressed_at),
        watch: transfer.watch,
        evidence: transfer.evidence,
        failure: transfer.stopped_by,
        ..RolloutStatus::default()
    }
}

fn stored_return(back: Return, internal: &mut InternalStatus) -> RolloutStatus {
    let (stage, failure) = match back.cause {
        Cause::Leaving(failure) => (RolloutStage::Leaving, failure),
        Cause::Returning => (RolloutStage::Returning, None),
        Cause::RollingBack(failure) => (RolloutStage::RollingBack, Some(failure)),
    };
    internal.workloads_restart_time = back.workloads_restarted_at;
    RolloutStatus {
        stage: Some(stage),
        start_time: Some(back.began_at),
        progress_time: Some(back.progressed_at),
        failure,
        ..RolloutStatus::default()
    }
}

/// Returns the base of a rollout that assigns the target to no pod. A pod with the target in the status gets another
/// version from now on.
fn without_thresholds(base: Base, stored: &InternalStatus) -> Base {
    let has_thresholds = stored.threshold > 0 || !stored.workloads.is_empty() || !stored.selectors.is_empty();
    Base { revision: base.revision + u64::from(has_thresholds), ..base }
}

fn with_version_states(mut status: VersionedConfigStatus) -> VersionedConfigStatus {
    let failed = status.rollout.failure.as_ref().map(|failure| &failure.version);
    for version in &mut status.versions {
        let name = Some(&version.version);
        version.state = match version.state {
            VersionState::Broken => VersionState::Broken,
            _ if name == status.current_version.as_ref() => VersionState::Current,
            _ if name == failed => VersionState::Failed,
            _ if name == status.target_version.as_ref() => VersionState::Target,
            _ => VersionState::Available,
        };
    }
    status
}
