//! The last refusal of a config's status by the API server, and how much of a status is written until the whole one is tried again.

use std::time::{Duration, Instant};

use nudge_core::config::Extent;

/// The last refusal of a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatusRefusal {
    /// When the whole status was refused.
    since: Instant,
    /// What is written instead.
    pub(crate) extent: Extent,
    /// What the API server answered last.
    pub(crate) cause: String,
}

impl StatusRefusal {
    /// The time until the whole status is tried again.
    pub(crate) const RETRY: Duration = Duration::from_mins(1);

    /// Returns the refusal of what is written after `before`; `None` where less can't be written.
    pub(crate) fn next(before: Option<&Self>, cause: String, now: Instant) -> Option<Self> {
        let (since, extent) = before.map_or((now, Extent::Whole), |before| (before.since, before.extent));
        Some(Self { since, extent: extent.smaller()?, cause })
    }

    /// Returns whether the whole status is not tried yet.
    pub(crate) fn holds(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < Self::RETRY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_is_written_after_each_refusal_and_all_is_tried_a_minute_after_the_first() {
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        let again =
            |before, cause: &str, seconds| StatusRefusal::next(before, cause.to_owned(), began + seconds * second);
        let short = again(None, "no", 0).unwrap();
        let plain = again(Some(&short), "never", 50).unwrap();
        assert_eq!((short.extent, plain.extent, plain.cause.as_str()), (Extent::Short, Extent::Plain, "never"));
        assert_eq!(again(Some(&plain), "no", 51), None);
        for refused in [&short, &plain] {
            assert!(refused.holds(began + 59 * second) && !refused.holds(began + 60 * second));
        }
    }
}
