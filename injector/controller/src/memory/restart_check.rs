//! The last check of the workloads that a rollout restarts, and the attempts in this part of the rollout.

use std::time::Duration;

use nudge_core::restart::{RestartAttempts, RestartReport, RolloutPart};
use nudge_core::rollout::Restarts;
use tokio::time::Instant;

/// The result of one check.
#[derive(Clone)]
pub(crate) struct RestartCheck {
    /// The state that the rollout's next step depends on.
    pub(crate) state: Restarts,
    /// The report for the condition; `None` if no workloads were listed.
    pub(crate) report: Option<RestartReport>,
    /// The number of checks in a row that failed, and the time of the first.
    pub(crate) failures: Option<(u32, Instant)>,
    /// The time until the next check.
    pub(crate) wait: Duration,
}

/// The memory of workloads in one part of a rollout.
#[derive(Default)]
pub(crate) struct RestartMemory {
    pub(super) part: RolloutPart,
    /// The attempts, so that none is made every second.
    pub(crate) attempts: RestartAttempts,
    /// The last check, and when it ended: the lists of the next check show its effects.
    pub(crate) last_check: Option<(Instant, RestartCheck)>,
}
