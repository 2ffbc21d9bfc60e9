//! The result of a look at workloads under restart.

use std::time::Duration;

use nudge_api::Reason;
use nudge_core::restart::{RETRY_SECONDS, Report, RestartReport};
use nudge_core::rollout::Restarts as State;
use nudge_protocol::backoff::Backoff;
use tokio::time::Instant;

use super::cause::Cause;

/// How often workloads under restart are listed. They are not watched, because that would be all workloads of the cluster.
pub(super) const LOOK: Duration = Duration::from_secs(1);

/// Waits after looks in a row that failed.
const BACKOFF: Backoff = Backoff { first: LOOK, longest: Duration::from_secs(30) };

/// The result of one look.
#[derive(Clone)]
pub(super) struct Restarting {
    /// For the rollout's next step.
    pub(super) state: State,
    /// For the condition; `None` where no workloads were listed.
    pub(super) found: Option<RestartReport>,
    /// How many looks in a row failed, and since when.
    pub(super) failing: Option<(u32, Instant)>,
    /// After how long to look again.
    pub(super) wait: Duration,
}

impl Restarting {
    pub(super) fn not_looked(state: State) -> Self {
        Self { state, found: None, failing: None, wait: LOOK }
    }

    /// Nobody looks now.
    pub(super) fn later() -> Self {
        Self::not_looked(State::Busy("workloads to restart have not been looked at".to_owned()))
    }

    /// A look that failed at a call, after one that was `failing` or not. Once they have failed for `deadline` seconds, that ends the rollout.
    pub(super) fn failed(version: &str, cause: &Cause, failing: Option<(u32, Instant)>, deadline: u32) -> Self {
        let (failures, since) = failing.unwrap_or((0, Instant::now()));
        let failures = failures.saturating_add(1);
        let message = format!("workloads can't be restarted, because {}", cause.text);
        let reason = if cause.refused { Reason::Refused } else { Reason::NotRestarted };
        let reports = vec![Report::new(reason, "", message.clone())];
        let found = RestartReport { version: version.to_owned(), workloads: 0, done: false, reports };
        let state = if since.elapsed() >= Duration::from_secs(deadline.into()) {
            State::Failed(format!("no progress within {deadline} s: {message}"))
        } else {
            State::Busy(message)
        };
        let wait = BACKOFF.jittered(failures, rand::random());
        Self { state, found: Some(found), failing: Some((failures, since)), wait }
    }

    /// When to look again: workloads are not watched.
    pub(super) fn again(&self) -> Option<Duration> {
        let held = matches!(self.state, State::Held(_));
        self.found.as_ref().map(|_| if held { Duration::from_secs(RETRY_SECONDS.into()) } else { self.wait })
    }
}
