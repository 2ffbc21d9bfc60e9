//! Exponential back-off: each failure in a row doubles the wait, up to a bound; jitter keeps agents out of step.

use std::time::Duration;

/// The waits between attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The wait after the first failure.
    pub first: Duration,
    /// The longest wait.
    pub longest: Duration,
}

impl Backoff {
    /// The wait after the given number of failures in a row, counted from 1.
    pub fn wait(self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(30);
        self.first.saturating_mul(1 << doublings).min(self.longest)
    }

    /// The same, or `None` where the next attempt would begin later than `limit` after the first one. `elapsed` is the time since
    /// the first attempt.
    pub fn wait_within(self, limit: Duration, failures: u32, elapsed: Duration) -> Option<Duration> {
        Some(self.wait(failures)).filter(|wait| elapsed + *wait <= limit)
    }
}

/// A random part of `wait`, from nothing to all of it. `random` is between 0 and 1.
pub fn full_jitter(wait: Duration, random: f64) -> Duration {
    wait.mul_f64(random.clamp(0.0, 1.0))
}

/// A random part of `wait`, at least half of it. `random` is between 0 and 1.
pub fn half_jitter(wait: Duration, random: f64) -> Duration {
    wait.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1) };
    const LIMIT: Duration = Duration::from_hours(1);

    proptest! {
        #[test]
        fn waits_grow_to_the_longest_and_end_at_the_limit(failures in 1u32..10_000, elapsed in 0u64..10_000, random in 0.0f64..=1.0) {
            let elapsed = Duration::from_secs(elapsed);
            let wait = BACKOFF.wait(failures);
            prop_assert!(wait >= BACKOFF.first && wait <= BACKOFF.longest && BACKOFF.wait(failures + 1) >= wait);
            prop_assert_eq!(BACKOFF.wait_within(LIMIT, failures, elapsed), (elapsed + wait <= LIMIT).then_some(wait));
            prop_assert!(full_jitter(wait, random) <= wait);
            prop_assert!(half_jitter(wait, random) <= wait && half_jitter(wait, random) * 2 >= wait);
        }
    }
}
