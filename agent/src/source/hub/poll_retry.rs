//! Decides when the hub is polled next, and whether that poll is held. Pure: time and chance are arguments.
//!
//! After a reply, the next poll follows at once, or after a short delay if the reply's changes must be reported first.
//! After a failure each agent waits a random part of a window that doubles with every failure, so that agents do not
//! poll in step.

use std::time::Duration;

use nudge_protocol::backoff::{Backoff, with_full_jitter};
use nudge_protocol::hub::MAX_WAIT_SECONDS;
use tokio::time::Instant;

use super::failure::{FailureKind, HubFailure};

/// The minimum age of a held poll that counts as cut by a proxy when it breaks. If a younger poll breaks, the hub has
/// gone.
const MIN_CUT_TIME: Duration = Duration::from_secs(5);
/// The minimum time until an answer without changes that shows that the poll was held.
const MIN_UNCHANGED_TIME: Duration = Duration::from_millis(500);
/// The number of held polls that may be cut in a row. After that, polls are no longer held.
const MAX_CUTS: u32 = 3;
/// The time that the next poll leaves to the report of a reply's changes, which goes over the same connection.
const REPORT_DELAY: Duration = Duration::from_millis(100);
/// The interval between attempts to hold polls again.
const LONG_POLL_RETRY_INTERVAL: Duration = Duration::from_mins(10);
/// The longest wait that a hub can request by `Retry-After`.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);

/// The waits after failures that mostly pass by themselves, and after replies that change nothing.
const TRANSIENT_BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(30) };
/// The waits after failures that pass when a file or the hub changes.
const PERSISTENT_BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1) };
/// The waits after a refusal that only an admin can change.
const REFUSAL_BACKOFF: Backoff = Backoff { first: Duration::from_secs(30), longest: Duration::from_mins(5) };

/// The time of the next poll, and how long it may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextPoll {
    /// The wait until the poll is sent.
    pub after: Duration,
    /// Whether the poll is sent at once after a report.
    pub follows_report: bool,
    /// The wait to ask the hub for, in seconds.
    pub wait_seconds: u32,
}

/// The way a poll has ended.
#[derive(Clone, Copy, Debug)]
pub enum PollEnd<'a> {
    /// With a reply that has changed something.
    Changed,
    /// With a reply that has changed nothing: the hub does not recognize the copies that the agent claims.
    Repeated,
    /// With the answer that nothing differs.
    Unchanged,
    /// With the answer that nothing differs, because this agent interrupted the poll.
    Interrupted,
    /// With a failure.
    Failed(&'a HubFailure),
}

/// The way of polling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PollMode {
    /// Polls are held; the last `cuts` polls in a row were cut.
    Long { cuts: u32 },
    /// Polls are repeated at an interval until this time, because held ones were cut.
    Interval { until: Instant },
}

/// The decision about the next poll.
#[derive(Clone, Debug)]
pub struct PollRetry {
    /// The time between polls that are not held.
    interval: Duration,
    /// The wait that the hub requests.
    wait_seconds: u32,
    /// The number of failures since the last answer.
    failures: u32,
    mode: PollMode,
    /// The number of answers in a row that came at once and changed nothing.
    idle_answers: u32,
}

impl PollRetry {
    /// Returns the state before the first poll.
    pub fn new(interval: Duration) -> Self {
        Self {
            interval,
            wait_seconds: MAX_WAIT_SECONDS,
            failures: 0,
            mode: PollMode::Long { cuts: 0 },
            idle_answers: 0,
        }
    }

    /// Sets the wait that the hub requests.
    pub fn set_wait_seconds(&mut self, seconds: u32) {
        self.wait_seconds = seconds.min(MAX_WAIT_SECONDS);
    }

    /// Returns the number of failures since the last answer.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns whether polls are repeated at an interval, since held ones were cut.
    pub fn is_by_interval(&self) -> bool {
        matches!(self.mode, PollMode::Interval { .. })
    }

    /// Returns the first poll. It is not held, so that the agent soon knows whether there is contact.
    pub fn first() -> NextPoll {
        NextPoll { after: Duration::ZERO, follows_report: false, wait_seconds: 0 }
    }

    /// Returns the poll after a poll that requested a wait of `wait_seconds`, took `elapsed` and ended at `now`.
    /// `random` is between 0 and 1.
    pub fn next(
        &mut self,
        poll_end: PollEnd<'_>,
        wait_seconds: u32,
        elapsed: Duration,
        now: Instant,
        random: f64,
    ) -> NextPoll {
        match poll_end {
            PollEnd::Changed | PollEnd::Repeated | PollEnd::Unchanged | PollEnd::Interrupted => {
                self.failures = 0;
                if wait_seconds > 0 {
                    self.mode = PollMode::Long { cuts: 0 };
                }
                let is_hasty =
                    wait_seconds > 0 && elapsed < MIN_UNCHANGED_TIME && matches!(poll_end, PollEnd::Unchanged);
                let is_idle = is_hasty || matches!(poll_end, PollEnd::Repeated);
                self.idle_answers = if is_idle { self.idle_answers.saturating_add(1) } else { 0 };
                let by_interval = matches!(self.mode, PollMode::Interval { until } if now < until);
                if is_idle {
                    // Otherwise agent and hub would keep each other busy.
                    let after = TRANSIENT_BACKOFF.jittered_wait(self.idle_answers, random);
                    NextPoll { after, follows_report: false, wait_seconds: self.wait_seconds }
                } else if by_interval || self.wait_seconds == 0 {
                    // The interval varies by a tenth, so that agents spread.
                    let after = self.interval.mul_f64(0.9 + random / 5.0);
                    NextPoll { after, follows_report: false, wait_seconds: 0 }
                } else {
                    let follows_report = matches!(poll_end, PollEnd::Changed);
                    let after = if follows_report { REPORT_DELAY } else { Duration::ZERO };
                    NextPoll { after, follows_report, wait_seconds: self.wait_seconds }
                }
            }
            PollEnd::Failed(failure) => {
                self.failures = self.failures.saturating_add(1);
                if wait_seconds > 0 && elapsed >= MIN_CUT_TIME && may_be_cut(failure) {
                    self.mode = match self.mode {
                        PollMode::Long { cuts } if cuts + 1 < MAX_CUTS => PollMode::Long { cuts: cuts + 1 },
                        _ => PollMode::Interval { until: now + LONG_POLL_RETRY_INTERVAL },
                    };
                }
                // The next poll is not held: its answer shows that there is contact again.
                let after = retry_wait(failure, self.failures, random);
                NextPoll { after, follows_report: false, wait_seconds: 0 }
            }
        }
    }
}

/// Returns whether something between agent and hub may have cut a held poll.
fn may_be_cut(failure: &HubFailure) -> bool {
    matches!(failure.kind, FailureKind::Lost | FailureKind::TimedOut | FailureKind::Status)
}

/// Returns the wait after the given number of failures in a row, counted from 1. `random` is between 0 and 1.
pub fn retry_wait(failure: &HubFailure, failures: u32, random: f64) -> Duration {
    match (failure.kind, failure.retry_after) {
        // The wait is at least as long as the hub requests, and agents do not all come at that moment.
        (FailureKind::Busy, Some(wait)) if !wait.is_zero() => wait.min(MAX_RETRY_AFTER).mul_f64(1.0 + random),
        (FailureKind::Unauthorized | FailureKind::Malformed | FailureKind::Local, _) => {
            PERSISTENT_BACKOFF.jittered_wait(failures, random)
        }
        (FailureKind::Forbidden, _) => REFUSAL_BACKOFF.jittered_wait(failures, random),
        _ => with_full_jitter(TRANSIENT_BACKOFF.wait(failures), random),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn failure(kind: FailureKind) -> HubFailure {
        HubFailure::new(kind, "")
    }

    const MINUTE: Duration = Duration::from_mins(1);

    #[test]
    fn an_answer_is_followed_by_a_held_poll_at_once() {
        let mut retry = PollRetry::new(MINUTE);
        retry.set_wait_seconds(40);
        let now = Instant::now();
        let lost = failure(FailureKind::Lost);
        let poll = retry.next(PollEnd::Failed(&lost), 0, Duration::ZERO, now, 0.5);
        assert_eq!(poll, NextPoll { after: Duration::from_millis(500), follows_report: false, wait_seconds: 0 });
        let poll = retry.next(PollEnd::Unchanged, 0, Duration::ZERO, now, 0.5);
        assert_eq!(poll, NextPoll { after: Duration::ZERO, follows_report: false, wait_seconds: 40 });
        assert_eq!(retry.failures(), 0);
        retry.set_wait_seconds(100_000);
        assert_eq!(retry.next(PollEnd::Unchanged, 40, MINUTE, now, 0.5).wait_seconds, MAX_WAIT_SECONDS);
    }

    #[test]
    fn polls_that_are_cut_again_and_again_are_not_held_for_a_while() {
        let mut retry = PollRetry::new(Duration::from_secs(30));
        let start = Instant::now();
        let cut = failure(FailureKind::Lost);
        for _ in 0..MAX_CUTS {
            assert!(!retry.is_by_interval());
            retry.next(PollEnd::Failed(&cut), 300, MINUTE, start, 0.0);
            retry.next(PollEnd::Unchanged, 0, Duration::ZERO, start, 0.0);
        }
        assert!(retry.is_by_interval());
        let poll = retry.next(PollEnd::Unchanged, 0, Duration::ZERO, start, 0.5);
        assert_eq!(poll, NextPoll { after: Duration::from_secs(30), follows_report: false, wait_seconds: 0 });
        // After a while one is held again; if it is cut too, it is back to the interval at once.
        let later = start + LONG_POLL_RETRY_INTERVAL;
        assert_eq!(retry.next(PollEnd::Unchanged, 0, Duration::ZERO, later, 0.5).wait_seconds, MAX_WAIT_SECONDS);
        retry.next(PollEnd::Failed(&cut), 300, MINUTE, later, 0.0);
        assert_eq!(retry.next(PollEnd::Unchanged, 0, Duration::ZERO, later, 0.5).wait_seconds, 0);
        // And if it is answered, that is over.
        let later = later + LONG_POLL_RETRY_INTERVAL;
        retry.next(PollEnd::Unchanged, 0, Duration::ZERO, later, 0.5);
        assert_eq!(retry.next(PollEnd::Unchanged, 300, MINUTE, later, 0.5).wait_seconds, MAX_WAIT_SECONDS);
        assert!(!retry.is_by_interval());
    }

    #[test]
    fn a_hub_that_ends_does_not_count_as_a_cut_poll() {
        let mut retry = PollRetry::new(MINUTE);
        for kind in [FailureKind::Unreachable, FailureKind::Busy, FailureKind::Unauthorized, FailureKind::Malformed] {
            for _ in 0..10 {
                retry.next(PollEnd::Failed(&failure(kind)), 300, MINUTE, Instant::now(), 0.0);
            }
        }
        for _ in 0..10 {
            retry.next(PollEnd::Failed(&failure(FailureKind::Lost)), 300, Duration::from_secs(1), Instant::now(), 0.0);
        }
        assert!(!retry.is_by_interval());
    }

    #[test]
    fn a_hub_that_answers_at_once_with_nothing_is_not_polled_at_once_again() {
        let mut retry = PollRetry::new(MINUTE);
        let now = Instant::now();
        let mut next = |ended, took| retry.next(ended, 300, took, now, 1.0).after;
        assert_eq!(next(PollEnd::Repeated, Duration::ZERO), Duration::from_secs(1));
        assert_eq!(next(PollEnd::Unchanged, Duration::ZERO), Duration::from_secs(2));
        assert_eq!(next(PollEnd::Unchanged, MINUTE), Duration::ZERO);
        assert_eq!(next(PollEnd::Repeated, MINUTE), Duration::from_secs(1));
        assert_eq!(next(PollEnd::Interrupted, Duration::ZERO), Duration::ZERO);
        assert_eq!(next(PollEnd::Changed, Duration::ZERO), REPORT_DELAY);
        retry.set_wait_seconds(0);
        let poll = retry.next(PollEnd::Changed, 0, Duration::ZERO, now, 0.5);
        assert_eq!(poll, NextPoll { after: MINUTE, follows_report: false, wait_seconds: 0 });
    }

    #[test]
    fn retry_after_is_the_shortest_wait() {
        let busy = HubFailure { retry_after: Some(Duration::from_secs(2)), ..failure(FailureKind::Busy) };
        assert_eq!(retry_wait(&busy, 1, 0.0), Duration::from_secs(2));
        assert_eq!(retry_wait(&busy, 9, 1.0), Duration::from_secs(4));
        let years = HubFailure { retry_after: Some(Duration::from_secs(1 << 40)), ..failure(FailureKind::Busy) };
        assert_eq!(retry_wait(&years, 1, 1.0), Duration::from_mins(2));
    }

    proptest! {
        #[test]
        fn waits_have_bounds_by_kind(at in 0..FailureKind::ALL.len(), failures in 0u32..10_000, random in 0.0f64..=1.0) {
            let kind = FailureKind::ALL[at];
            let wait = retry_wait(&failure(kind), failures, random);
            let (least, most) = match kind {
                FailureKind::Forbidden => (15, 300),
                FailureKind::Unauthorized | FailureKind::Malformed | FailureKind::Local => (0, 60),
                _ => (0, 30),
            };
            prop_assert!(wait >= Duration::from_secs(least) && wait <= Duration::from_secs(most), "{:?}", wait);
            if failures <= 1 && kind != FailureKind::Forbidden { prop_assert!(wait <= Duration::from_secs(1)); }
        }
    }
}
