//! The version of the newest content, and the time when that content has settled.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// The maximum wait of content that keeps changing, as a multiple of the debounce.
const MAX_DEBOUNCES: u32 = 10;

/// The version of the newest content. Older content is forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebouncedVersion {
    /// The name of the version that the content is, or will be.
    pub version: String,
    /// The time when the content was first seen.
    pub changed: Timestamp,
    /// The time when the content began to change: when the first content after settled content was seen.
    pub since: Timestamp,
}

impl DebouncedVersion {
    /// Returns the version of the first content.
    pub fn first(version: String, now: Timestamp) -> Self {
        Self { version, changed: now, since: now }
    }

    /// Notes the content that was read. The same content is not a change.
    pub fn observe(&mut self, version: String, debounce: Duration, now: Timestamp) {
        if self.version == version {
            return;
        }
        if self.settles_at(debounce) <= now {
            self.since = now;
        }
        (self.version, self.changed) = (version, now);
    }

    /// Returns the time when the content may become a version.
    pub fn settles_at(&self, debounce: Duration) -> Timestamp {
        after(self.changed, debounce).min(after(self.since, debounce.saturating_mul(MAX_DEBOUNCES)))
    }
}

/// Returns `time` plus `period`, saturating.
pub(super) fn after(time: Timestamp, period: Duration) -> Timestamp {
    SignedDuration::try_from(period).ok().and_then(|period| time.checked_add(period).ok()).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).unwrap()
    }

    #[test]
    fn content_that_stays_settles_after_the_debounce() {
        let debounce = Duration::from_secs(2);
        let mut newest = DebouncedVersion::first("a".into(), at(0));
        assert_eq!(newest.settles_at(debounce), at(2000));
        newest.observe("b".into(), debounce, at(1500));
        newest.observe("b".into(), debounce, at(3000));
        assert_eq!(newest.settles_at(debounce), at(3500));
        // The next change begins a new wait.
        newest.observe("c".into(), debounce, at(100_000));
        assert_eq!((newest.since, newest.settles_at(debounce)), (at(100_000), at(102_000)));
    }

    proptest! {
        #[test]
        fn nothing_waits_for_longer_than_ten_times_the_debounce(
            gaps in proptest::collection::vec(0_i64..400, 1..200), millis in 1_u64..300
        ) {
            let (debounce, mut now) = (Duration::from_millis(millis), 0);
            let mut newest = DebouncedVersion::first("first".into(), at(0));
            let mut unsettled = 0;
            for (number, gap) in gaps.into_iter().enumerate() {
                let settles = newest.settles_at(debounce);
                prop_assert!(settles <= at(unsettled + 10 * i64::try_from(millis).unwrap()));
                now += gap;
                if settles <= at(now) {
                    unsettled = now;
                }
                newest.observe(number.to_string(), debounce, at(now));
            }
        }
    }
}
