//! The last refusal of a config's status by the API server, and how much of a status is written until the whole one is
//! tried again.

use std::time::{Duration, Instant};

use nudge_core::config::StatusExtent;

/// The last refusal of a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatusRefusal {
    /// The time when the whole status was refused.
    since: Instant,
    /// The extent that is written instead.
    pub(crate) extent: StatusExtent,
    /// The last answer of the API server.
    pub(crate) cause: String,
}

impl StatusRefusal {
    /// The time until the whole status is tried again.
    pub(crate) const RETRY_INTERVAL: Duration = Duration::from_mins(1);

    /// Returns the refusal after `before`, with a smaller extent; `None` if there is none.
    pub(crate) fn next(before: Option<&Self>, cause: String, now: Instant) -> Option<Self> {
        let (since, extent) = before.map_or((now, StatusExtent::Whole), |before| (before.since, before.extent));
        Some(Self { since, extent: extent.smaller()?, cause })
    }

    /// Returns whether the whole status is not to be tried yet.
    pub(crate) fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < Self::RETRY_INTERVAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_is_written_after_each_refusal_and_all_is_tried_a_minute_after_the_first() {
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        let refuse =
            |before, cause: &str, seconds| StatusRefusal::next(before, cause.to_owned(), began + seconds * second);
        let short = refuse(None, "no", 0).unwrap();
        let plain = refuse(Some(&short), "never", 50).unwrap();
        assert_eq!(
            (short.extent, plain.extent, plain.cause.as_str()),
            (StatusExtent::Short, StatusExtent::Plain, "never")
        );
        assert_eq!(refuse(Some(&plain), "no", 51), None);
        for refused in [&short, &plain] {
            assert!(refused.is_recent(began + 59 * second) && !refused.is_recent(began + 60 * second));
        }
    }
}
