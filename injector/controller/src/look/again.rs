//! When to look at a config again.

use std::time::Duration;

use nudge_core::rollout::Millis;

/// When to look at a config again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// When something is seen to change.
    Never,
    /// There is more to do.
    Soon,
    /// At the latest after this time.
    At(Duration),
}

impl Again {
    /// Returns the same, after this time at the latest.
    pub(super) fn by(self, time: Option<Duration>) -> Self {
        match (self, time) {
            (Self::At(wait), Some(time)) => Self::At(wait.min(time)),
            (Self::Never, Some(time)) => Self::At(time),
            (again, _) => again,
        }
    }
}

/// Returns so many milliseconds; at least a moment, to avoid a busy loop.
pub(super) fn wait(millis: Millis) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0)).max(Duration::from_millis(20))
}
