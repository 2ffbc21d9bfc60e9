//! The last look at the workloads that a rollout restarts, and what was tried in this part of the rollout.

use std::time::Duration;

use nudge_core::restart::{Memory, Part, RestartReport};
use nudge_core::rollout::Restarts;
use tokio::time::Instant;

/// The result of one look.
#[derive(Clone)]
pub(crate) struct RestartLook {
    /// For the rollout's next step.
    pub(crate) state: Restarts,
    /// For the condition; `None` where no workloads were listed.
    pub(crate) report: Option<RestartReport>,
    /// How many looks in a row failed, and since when.
    pub(crate) failures: Option<(u32, Instant)>,
    /// The time until the next look.
    pub(crate) wait: Duration,
}

/// What is remembered of workloads in one part of a rollout.
#[derive(Default)]
pub(crate) struct RestartMemory {
    pub(super) part: Part,
    /// What was tried, so that it is not tried every second.
    pub(crate) attempts: Memory,
    /// The last look, and when it ended: what is listed for the next one shows what it did.
    pub(crate) last_look: Option<(Instant, RestartLook)>,
}
