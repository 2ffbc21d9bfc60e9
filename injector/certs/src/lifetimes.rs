//! How long certificates live, and how long each step of a rotation lasts.

use std::time::Duration;

/// The times of a rotation. Clients trust what was published a while ago: a kubelet takes minutes to refresh a ConfigMap in a
/// volume. So a new authority is published for `propagation` before it signs, and an old one until everything it signed has
/// expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// How long an authority is valid. The next one is made when two thirds are over.
    pub authority: Duration,
    /// How long a serving certificate is valid. It is renewed when two thirds are over.
    pub certificate: Duration,
    /// How long an authority is published before it signs.
    pub propagation: Duration,
    /// How long an authority is still published when everything that it signed has expired.
    pub grace: Duration,
    /// How far clients' clocks may be behind.
    pub leeway: Duration,
    /// How often the clock and the stored certificates are checked.
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
    /// An authority lives for three years: short enough that every installation sees its rotation, and long enough for an agent that
    /// only has the bundle of its admission. Each step of a rotation takes a day.
    fn default() -> Self {
        Self {
            authority: DAY * 3 * 365,
            certificate: DAY * 90,
            propagation: DAY,
            grace: DAY,
            leeway: Duration::from_hours(1),
            check: Duration::from_mins(1),
        }
    }
}

impl Lifetimes {
    /// Checks that every step has time before anything expires.
    pub fn checked(self) -> Result<Self, LifetimesError> {
        let refuse = |what| Err(LifetimesError { what });
        if self.check.is_zero() || self.check * 3 > self.certificate / 3 {
            return refuse(
                "a serving certificate must live at least nine times as long as the time between two checks",
            );
        }
        if self.check * 2 > self.propagation {
            return refuse("an authority must be published for at least two checks before it signs");
        }
        if self.certificate + (self.propagation + self.grace) * 2 > self.authority / 3 {
            return refuse(
                "a third of an authority's life must be longer than a serving certificate's life and twice the times of \
                 propagation and grace",
            );
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_lifetimes_leave_time() {
        Lifetimes::default().checked().unwrap();
    }

    #[test]
    fn lifetimes_without_time_for_a_rotation_are_refused() {
        let defaults = Lifetimes::default();
        let refused = [
            Lifetimes { check: Duration::ZERO, ..defaults },
            Lifetimes { check: defaults.certificate / 8, ..defaults },
            Lifetimes { propagation: defaults.check, ..defaults },
            Lifetimes { authority: defaults.certificate * 3, ..defaults },
        ];
        for lifetimes in refused {
            assert!(lifetimes.checked().is_err(), "{lifetimes:?}");
        }
    }
}
