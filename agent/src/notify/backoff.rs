//! Waits between attempts: longer after every failure, never in step with others.

use std::time::Duration;

/// Exponential waits with a bound on each and on all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first wait.
    pub first: Duration,
    /// The longest wait.
    pub longest: Duration,
    /// No attempt begins later than this after the first one.
    pub give_up: Duration,
}

impl Backoff {
    /// The wait after the `failures`-th failure (counted from 1), `elapsed` after the first attempt; `None` to give up.
    pub fn wait(&self, failures: u32, elapsed: Duration) -> Option<Duration> {
        let doublings = failures.saturating_sub(1).min(30);
        let wait = self.first.saturating_mul(1 << doublings).min(self.longest);
        (elapsed + wait <= self.give_up).then_some(wait)
    }
}

/// `wait` shortened at random by up to a half. `random` is between 0 and 1.
pub(super) fn jittered(wait: Duration, random: f64) -> Duration {
    wait.mul_f64(1.0 - random.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BACKOFF: Backoff =
        Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1), give_up: Duration::from_hours(1) };

    proptest! {
        #[test]
        fn waits_grow_to_the_longest_and_end(failures in 1u32..10_000, elapsed in 0u64..10_000, random in 0.0f64..=1.0) {
            let elapsed = Duration::from_secs(elapsed);
            match BACKOFF.wait(failures, elapsed) {
                None => prop_assert!(elapsed + BACKOFF.longest > BACKOFF.give_up),
                Some(wait) => {
                    prop_assert!(wait >= BACKOFF.first && wait <= BACKOFF.longest);
                    prop_assert!(BACKOFF.wait(failures + 1, Duration::ZERO).unwrap() >= wait);
                    let jittered = jittered(wait, random);
                    prop_assert!(jittered <= wait && jittered * 2 >= wait);
                }
            }
        }
    }
}
