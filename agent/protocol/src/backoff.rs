//! Waits between attempts: longer after every failure. Chance is an argument, so that the same input gives the same
//! wait.

use std::time::Duration;

/// Waits that double with every failure, up to a bound.
///
/// ```
/// use std::time::Duration;
///
/// use nudge_protocol::backoff::Backoff;
///
/// let backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(60) };
/// assert_eq!(backoff.wait(3), Duration::from_secs(4));
/// assert_eq!(backoff.wait(10), backoff.longest);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first wait.
    pub first: Duration,
    /// The longest wait.
    pub longest: Duration,
}

impl Backoff {
    /// Returns the wait after the `failures`-th failure in a row, counted from 1.
    pub fn wait(self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(30);
        self.first.saturating_mul(1 << doublings).min(self.longest)
    }

    /// Returns the wait after the `failures`-th failure, or `None` if the next attempt would begin later than `limit`
    /// after the first attempt. `elapsed` is the time since the first attempt.
    pub fn wait_within(self, limit: Duration, failures: u32, elapsed: Duration) -> Option<Duration> {
        Some(self.wait(failures)).filter(|wait| elapsed + *wait <= limit)
    }

    /// Returns the wait, shortened by up to a half. `random` is between 0 and 1; 1 leaves the wait as it is.
    pub fn jittered_wait(self, failures: u32, random: f64) -> Duration {
        with_jitter(self.wait(failures), random)
    }
}

/// Shortens `wait` by up to a half, so that those who wait for the same thing do not come at the same moment. `random`
/// is between 0 and 1.
pub fn with_jitter(wait: Duration, random: f64) -> Duration {
    wait.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
}

/// Returns a random part of `wait`, from nothing to all of it. `random` is between 0 and 1.
pub fn with_full_jitter(wait: Duration, random: f64) -> Duration {
    wait.mul_f64(random.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1) };

    #[test]
    fn waits_double_up_to_the_longest() {
        assert_eq!([1, 2, 3, 7, 60].map(|failures| BACKOFF.wait(failures).as_secs()), [1, 2, 4, 60, 60]);
        assert_eq!(BACKOFF.jittered_wait(1, 0.0), Duration::from_millis(500));
        assert_eq!(BACKOFF.jittered_wait(1, 1.0), Duration::from_secs(1));
    }

    proptest! {
        #[test]
        fn waits_have_bounds(failures: u32, elapsed in 0u64..10_000, random in 0.0f64..=1.0) {
            let (limit, elapsed) = (Duration::from_hours(1), Duration::from_secs(elapsed));
            let within = BACKOFF.wait_within(limit, failures, elapsed);
            prop_assert_eq!(within, Some(BACKOFF.wait(failures)).filter(|wait| elapsed + *wait <= limit));
            let (wait, jittered) = (BACKOFF.wait(failures), BACKOFF.jittered_wait(failures, random));
            prop_assert!(wait >= BACKOFF.first && wait <= BACKOFF.longest);
            prop_assert!(BACKOFF.wait(failures.saturating_add(1)) >= wait);
            prop_assert!(jittered <= wait && jittered * 2 >= wait);
            prop_assert!(with_full_jitter(wait, random) <= wait);
        }
    }
}
