//! The result of a look at workloads under restart.

use std::time::Duration;

use nudge_core::restart::{RETRY_SECONDS, RestartReport};
use nudge_core::rollout::Restarts as State;

/// How often workloads under restart are listed. They are not watched, because that would be all workloads of the cluster.
pub(super) const LOOK: Duration = Duration::from_secs(1);

/// The result of one look.
#[derive(Clone)]
pub(super) struct Restarting {
    /// For the rollout's next step.
    pub(super) state: State,
    /// For the condition; `None` where no workloads were listed.
    pub(super) found: Option<RestartReport>,
}

impl Restarting {
    pub(super) fn not_looked(state: State) -> Self {
        Self { state, found: None }
    }

    /// Nobody looks now.
    pub(super) fn later() -> Self {
        Self::not_looked(State::Busy("workloads to restart have not been looked at".to_owned()))
    }

    /// When to look again: workloads are not watched.
    pub(super) fn again(&self) -> Option<Duration> {
        let held = matches!(self.state, State::Held(_));
        self.found.as_ref().map(|_| if held { Duration::from_secs(RETRY_SECONDS.into()) } else { LOOK })
    }
}
