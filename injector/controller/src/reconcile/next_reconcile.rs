//! When a config is reconciled again.

use std::time::Duration;

use nudge_core::rollout::Millis;

/// The shortest wait that a decision leads to, which avoids a busy loop.
const MIN_WAIT: Duration = Duration::from_millis(20);

/// The time of a config's next reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextReconcile {
    /// When something is seen to change.
    OnChange,
    /// At once, because there is more to do.
    Soon,
    /// After this time at the latest.
    Within(Duration),
}

impl NextReconcile {
    /// Returns the earlier of both times.
    pub(super) fn or_within(self, wait: Option<Duration>) -> Self {
        match (self, wait) {
            (Self::Within(known), Some(wait)) => Self::Within(known.min(wait)),
            (Self::OnChange, Some(wait)) => Self::Within(wait),
            (next, _) => next,
        }
    }
}

/// Converts milliseconds to a wait.
pub(super) fn to_wait(millis: Millis) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0)).max(MIN_WAIT)
}
