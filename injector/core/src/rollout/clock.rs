//! The two clocks of a rollout.

use std::ops::{Add, Sub};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// A duration in milliseconds.
pub type Millis = i64;

/// A time of a clock that never jumps, which only one leader has: the milliseconds since the clock began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SteadyTime(pub Millis);

impl Add<Millis> for SteadyTime {
    type Output = Self;

    fn add(self, duration: Millis) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

impl Sub for SteadyTime {
    type Output = Millis;

    fn sub(self, earlier: Self) -> Millis {
        self.0.saturating_sub(earlier.0)
    }
}

/// The present time, by both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now<'a> {
    /// The time of day, which is stored.
    pub time: &'a Time,
    /// The time that this leader's evidence is measured with.
    pub steady: SteadyTime,
}

/// Returns the duration in milliseconds.
pub(super) fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX)
}

/// Returns this number of seconds in milliseconds.
pub(super) fn seconds(seconds: u32) -> Millis {
    Millis::from(seconds) * 1000
}

/// Returns the time that is this number of seconds after another. A time that is too late to be represented never
/// comes.
pub(super) fn after(time: Timestamp, seconds: u32) -> Timestamp {
    time.checked_add(SignedDuration::from_secs(i64::from(seconds))).unwrap_or(Timestamp::MAX)
}

impl Now<'_> {
    /// Returns how long it is until `time`; `None` if that time has come.
    pub(crate) fn until(&self, time: Timestamp) -> Option<Millis> {
        let left = time.duration_since(self.time.0).as_millis();
        let left = Millis::try_from(left).unwrap_or(Millis::MAX);
        (left > 0).then_some(left)
    }

    /// Returns when `time` comes by the steady clock, but at the latest `end_time`: the clock of the leader that stored
    /// the time may have been ahead. Returns `None` if that time has come.
    pub(super) fn until_within(&self, time: Timestamp, end_time: SteadyTime) -> Option<SteadyTime> {
        self.until(time).map(|left| end_time.min(self.steady + left)).filter(|end_time| *end_time > self.steady)
    }
}
