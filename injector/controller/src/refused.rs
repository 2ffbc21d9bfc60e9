//! What the API server refuses of a config's status, and how much of it is written until the whole one is tried again.

use std::time::{Duration, Instant};

use nudge_core::versions::Extent;

/// The last refusal of a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    /// When the whole status was refused.
    at: Instant,
    /// What is written instead.
    pub(super) extent: Extent,
    /// What the API server answered last.
    pub(super) cause: String,
}

impl Refused {
    /// When the whole status is tried again.
    pub(super) const AGAIN: Duration = Duration::from_mins(1);

    /// After the API server has refused what is written by `before`; `None` where less can't be written.
    pub(super) fn again(before: Option<&Self>, cause: String, now: Instant) -> Option<Self> {
        let (at, extent) = before.map_or((now, Extent::Whole), |before| (before.at, before.extent));
        Some(Self { at, extent: extent.smaller()?, cause })
    }

    /// Whether the whole status is not tried yet.
    pub(super) fn holds(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) < Self::AGAIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_is_written_after_each_refusal_and_all_is_tried_a_minute_after_the_first() {
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        let again = |before, cause: &str, seconds| Refused::again(before, cause.to_owned(), began + seconds * second);
        let short = again(None, "no", 0).unwrap();
        let plain = again(Some(&short), "never", 50).unwrap();
        assert_eq!((short.extent, plain.extent, plain.cause.as_str()), (Extent::Short, Extent::Plain, "never"));
        assert_eq!(again(Some(&plain), "no", 51), None);
        for refused in [&short, &plain] {
            assert!(refused.holds(began + 59 * second) && !refused.holds(began + 60 * second));
        }
    }
}
