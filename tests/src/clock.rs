//! The machine's monotonic clock, whose readings can be compared between processes.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// A reading of `CLOCK_MONOTONIC`, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Monotonic(u64);

impl Monotonic {
    /// The length of [`Self::to_bytes`].
    pub const BYTES: usize = 8;

    /// Reads the clock. Allowed in a signal handler: neither locks nor allocates.
    pub fn now() -> Self {
        // It fails only for a clock that does not exist, and every Linux has this one.
        clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Self(0), |time| {
            let nanos = Duration::from(time).as_nanos();
            Self(u64::try_from(nanos).unwrap_or(u64::MAX))
        })
    }

    /// Returns how long after `earlier` this was; zero if it was before.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Nanoseconds since a moment that all processes of the machine share.
    pub fn nanos(self) -> u64 {
        self.0
    }

    /// Returns the bytes of the reading, for a pipe between processes of one machine.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0.to_ne_bytes()
    }

    /// Returns what [`Self::to_bytes`] gave.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(u64::from_ne_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_continues_and_never_below_zero() {
        let first = Monotonic::now();
        let second = Monotonic::now();
        assert!(second >= first);
        assert_eq!(Monotonic(5).since(Monotonic(7)), Duration::ZERO);
        assert_eq!(Monotonic(7).since(Monotonic(5)), Duration::from_nanos(2));
        assert_eq!(Monotonic::from_bytes(first.to_bytes()), first);
    }
}
