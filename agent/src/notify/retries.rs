//! When a notification that failed is tried again, and when it is given up.

use std::time::Duration;

use nudge_protocol::backoff::Backoff;

/// Waits between attempts, and a bound on all of them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Retries {
    /// The waits.
    pub(super) backoff: Backoff,
    /// No attempt begins later than this after the first one.
    pub(super) give_up: Duration,
}

impl Retries {
    /// The wait after the `failures`-th failure (counted from 1), `elapsed` after the first attempt; `None` to give up.
    pub(super) fn wait(&self, failures: u32, elapsed: Duration) -> Option<Duration> {
        let wait = self.backoff.wait(failures);
        (elapsed + wait <= self.give_up).then_some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_attempt_begins_after_the_end() {
        let backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1) };
        let retries = Retries { backoff, give_up: Duration::from_hours(1) };
        let wait = |elapsed| retries.wait(9, Duration::from_secs(elapsed)).map(|wait| wait.as_secs());
        assert_eq!([wait(0), wait(3540), wait(3541)], [Some(60), Some(60), None]);
    }
}
