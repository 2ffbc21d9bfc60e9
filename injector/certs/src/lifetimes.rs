//! The lifetimes of certificates, and when the next ones are made.

use std::time::Duration;

/// The maximum number of cross certificates that a server sends with its own. Each adds some 500 bytes to every
/// handshake.
pub const MAX_CROSSES: u32 = 3;
/// The maximum lag of clocks. Certificates are valid from this much earlier.
pub const LEEWAY: Duration = Duration::from_hours(1);

/// The times of a rotation.
///
/// The next authority is made, and cross-signed, when two thirds of an authority's life are over. The serving
/// certificate changes to the next authority at its next renewal, at least a sixth of its life later. Servers send the
/// last [`MAX_CROSSES`] cross certificates. A client that trusts one authority therefore accepts the servers for at
/// least twice an authority's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// The lifetime of an authority.
    pub authority: Duration,
    /// The lifetime of a serving certificate, which is renewed after two thirds of it.
    pub certificate: Duration,
    /// How long an old authority stays published after the last certificate under it was replaced. During this time,
    /// every server gets the new certificate.
    pub grace: Duration,
    /// The interval between checks of the clock and the stored certificates.
    pub check: Duration,
}

/// Lifetimes that leave no time for a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct LifetimesError {
    what: &'static str,
}

const DAY: Duration = Duration::from_hours(24);

impl Default for Lifetimes {
    /// Returns lifetimes with three years for an authority: short enough that every installation sees a rotation, and
    /// long enough for pods that run for years.
    fn default() -> Self {
        Self { authority: DAY * 3 * 365, certificate: DAY * 90, grace: DAY, check: Duration::from_mins(1) }
    }
}

impl Lifetimes {
    /// Checks that there is time for every step before anything expires.
    pub fn checked(self) -> Result<Self, LifetimesError> {
        let error = |what| Err(LifetimesError { what });
        if self.check.is_zero() || self.check * 18 > self.certificate {
            return error(
                "a serving certificate must live at least eighteen times as long as the time between two checks",
            );
        }
        if self.certificate + self.grace * 2 > self.authority / 3 {
            return error(
                "a third of an authority's life must be longer than a serving certificate's life and twice the grace time",
            );
        }
        Ok(self)
    }

    /// Returns the lifetime of a cross certificate. It ends when [`MAX_CROSSES`] later authorities were made and the
    /// last certificate under the previous one has expired.
    pub(super) fn cross(&self) -> Duration {
        self.authority * 2 / 3 * MAX_CROSSES + self.certificate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_lifetimes_leave_time() {
        let lifetimes = Lifetimes::default().checked().unwrap();
        assert_eq!(lifetimes.cross(), DAY * (6 * 365 + 90));
    }

    #[test]
    fn lifetimes_without_time_for_a_rotation_are_refused() {
        let defaults = Lifetimes::default();
        let refused = [
            Lifetimes { check: Duration::ZERO, ..defaults },
            Lifetimes { check: defaults.certificate / 17, ..defaults },
            Lifetimes { authority: defaults.certificate * 3, ..defaults },
        ];
        for lifetimes in refused {
            assert!(lifetimes.checked().is_err(), "{lifetimes:?}");
        }
    }
}
