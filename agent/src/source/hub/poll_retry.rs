//! When the hub is polled next, and whether that poll is held. Pure: time and chance are arguments.
//!
//! A reply is followed by the next poll at once, or by the report of what it has changed, which takes a moment. After a failure each agent
//! waits a random part of a window that doubles with every failure, so that agents do not come in step.

use std::time::Duration;

use nudge_protocol::backoff::{Backoff, with_full_jitter, with_jitter};
use nudge_protocol::hub::MAX_WAIT_SECONDS;
use tokio::time::Instant;

use super::failure::{Failure, FailureKind};

/// A held poll that breaks sooner than this was not cut by a proxy that has no patience: the hub has gone.
const MIN_HELD_TIME: Duration = Duration::from_secs(5);
/// A held poll that is answered sooner with nothing was not held.
const MIN_EMPTY_TIME: Duration = Duration::from_millis(500);
/// After so many held polls in a row that were cut, polls are not held any more.
const MAX_CUTS: u32 = 3;
/// How long the next poll waits for the report of what a reply has changed. It goes over the same connection.
const REPORT_WAIT: Duration = Duration::from_millis(100);
/// When a held poll is tried again.
const HOLD_RETRY_INTERVAL: Duration = Duration::from_mins(10);
/// The longest wait that a hub can ask for by `Retry-After`.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);

/// After failures that mostly pass by themselves, and after replies that bring nothing.
const TRANSIENT_BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(30) };
/// After failures that pass when a file or the hub changes.
const MEDIUM_BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1) };
/// After a refusal that only an admin can change.
const REFUSAL_BACKOFF: Backoff = Backoff { first: Duration::from_secs(30), longest: Duration::from_mins(5) };

/// The next poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextPoll {
    /// How long until it is sent.
    pub after: Duration,
    /// Whether the poll is sent at once after a report.
    pub reports: bool,
    /// The wait to ask the hub for, in seconds.
    pub wait_seconds: u32,
}

/// How a poll has ended.
#[derive(Clone, Copy, Debug)]
pub enum PollEnd<'a> {
    /// With a reply that has changed something.
    Changed,
    /// With a reply that has changed nothing: the hub does not recognize what the agent says it holds.
    Repeated,
    /// With the answer that nothing differs.
    Unchanged,
    /// With the answer that nothing differs, because this agent interrupted the poll.
    Interrupted,
    /// With a failure.
    Failed(&'a Failure),
}

/// Whether polls are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holding {
    /// Polls are held; this many held ones in a row were cut.
    Held { cuts: u32 },
    /// Polls are repeated at an interval until this time, because held ones were cut.
    Interval { until: Instant },
}

/// The decision about the next poll.
#[derive(Clone, Debug)]
pub struct PollRetry {
    /// Between polls that are not held.
    interval: Duration,
    /// The wait that the hub asks for.
    wait_seconds: u32,
    /// Failures since the last answer.
    failures: u32,
    holding: Holding,
    /// Answers in a row that came at once and brought nothing.
    idle: u32,
}

impl PollRetry {
    /// Before the first poll.
    pub fn new(interval: Duration) -> Self {
        Self { interval, wait_seconds: MAX_WAIT_SECONDS, failures: 0, holding: Holding::Held { cuts: 0 }, idle: 0 }
    }

    /// Sets the wait that the hub asks for.
    pub fn set_wait_seconds(&mut self, seconds: u32) {
        self.wait_seconds = seconds.min(MAX_WAIT_SECONDS);
    }

    /// Failures since the last answer.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns whether polls are repeated at an interval, since held ones were cut.
    pub fn by_interval(&self) -> bool {
        matches!(self.holding, Holding::Interval { .. })
    }

    /// The first poll. It is not held, so that the agent soon knows whether there is contact.
    pub fn first() -> NextPoll {
        NextPoll { after: Duration::ZERO, reports: false, wait_seconds: 0 }
    }

    /// The poll after one that asked for `asked` seconds, took `took` and ended at `now`. `random` is between 0 and 1.
    pub fn next(&mut self, end: PollEnd<'_>, asked: u32, took: Duration, now: Instant, random: f64) -> NextPoll {
        match end {
            PollEnd::Changed | PollEnd::Repeated | PollEnd::Unchanged | PollEnd::Interrupted => {
                self.failures = 0;
                if asked > 0 {
                    self.holding = Holding::Held { cuts: 0 };
                }
                let hasty = asked > 0 && took < MIN_EMPTY_TIME && matches!(end, PollEnd::Unchanged);
                self.idle = if hasty || matches!(end, PollEnd::Repeated) { self.idle.saturating_add(1) } else { 0 };
                let by_interval = matches!(self.holding, Holding::Interval { until } if now < until);
                if self.idle > 0 {
                    // Else agent and hub would keep each other busy.
                    let after = with_jitter(TRANSIENT_BACKOFF.wait(self.idle), random);
                    NextPoll { after, reports: false, wait_seconds: self.wait_seconds }
                } else if by_interval || self.wait_seconds == 0 {
                    // A tenth more or less, so that agents spread.
                    let after = self.interval.mul_f64(0.9 + random / 5.0);
                    NextPoll { after, reports: false, wait_seconds: 0 }
                } else {
                    let reports = matches!(end, PollEnd::Changed);
                    let after = if reports { REPORT_WAIT } else { Duration::ZERO };
                    NextPoll { after, reports, wait_seconds: self.wait_seconds }
                }
            }
            PollEnd::Failed(failure) => {
                self.failures = self.failures.saturating_add(1);
                if asked > 0 && took >= MIN_HELD_TIME && may_be_cut(failure) {
                    self.holding = match self.holding {
                        Holding::Held { cuts } if cuts + 1 < MAX_CUTS => Holding::Held { cuts: cuts + 1 },
                        _ => Holding::Interval { until: now + HOLD_RETRY_INTERVAL },
                    };
                }
                // The next poll is not held: its answer shows that there is contact again.
                let after = retry_wait(failure, self.failures, random);
                NextPoll { after, reports: false, wait_seconds: 0 }
            }
        }
    }
}

/// Returns whether something between agent and hub may have cut a held poll.
fn may_be_cut(failure: &Failure) -> bool {
    matches!(failure.kind, FailureKind::Lost | FailureKind::TimedOut | FailureKind::Status)
}

/// How long to wait after the given number of failures in a row, counted from 1. `random` is between 0 and 1.
pub fn retry_wait(failure: &Failure, failures: u32, random: f64) -> Duration {
    match (failure.kind, failure.retry_after) {
        // At least as long as the hub asks for, and not all agents at that moment.
        (FailureKind::Busy, Some(wait)) if !wait.is_zero() => wait.min(MAX_RETRY_AFTER).mul_f64(1.0 + random),
        (
            FailureKind::Unreachable
            | FailureKind::Tls
            | FailureKind::Lost
            | FailureKind::TimedOut
            | FailureKind::Status
            | FailureKind::Busy,
            _,
        ) => with_full_jitter(TRANSIENT_BACKOFF.wait(failures), random),
        (FailureKind::Unauthorized | FailureKind::Malformed | FailureKind::Local, _) => {
            with_jitter(MEDIUM_BACKOFF.wait(failures), random)
        }
        (FailureKind::Forbidden, _) => with_jitter(REFUSAL_BACKOFF.wait(failures), random),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn failure(kind: FailureKind) -> Failure {
        Failure::new(kind, "")
    }

    const MINUTE: Duration = Duration::from_mins(1);

    #[test]
    fn an_answer_is_followed_by_a_held_poll_at_once() {
        let mut retry = PollRetry::new(MINUTE);
        retry.set_wait_seconds(40);
        let now = Instant::now();
        let lost = failure(FailureKind::Lost);
        let ask = retry.next(PollEnd::Failed(&lost), 0, Duration::ZERO, now, 0.5);
        assert_eq!(ask, NextPoll { after: Duration::from_millis(500), reports: false, wait_seconds: 0 });
        let ask = retry.next(PollEnd::Unchanged, 0, Duration::ZERO, now, 0.5);
        assert_eq!(ask, NextPoll { after: Duration::ZERO, reports: false, wait_seconds: 40 });
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
            assert!(!retry.by_interval());
            retry.next(PollEnd::Failed(&cut), 300, MINUTE, start, 0.0);
            retry.next(PollEnd::Unchanged, 0, Duration::ZERO, start, 0.0);
        }
        assert!(retry.by_interval());
        let ask = retry.next(PollEnd::Unchanged, 0, Duration::ZERO, start, 0.5);
        assert_eq!(ask, NextPoll { after: Duration::from_secs(30), reports: false, wait_seconds: 0 });
        // After a while one is held again; if it is cut too, it is back to the interval at once.
        let later = start + HOLD_RETRY_INTERVAL;
        assert_eq!(retry.next(PollEnd::Unchanged, 0, Duration::ZERO, later, 0.5).wait_seconds, MAX_WAIT_SECONDS);
        retry.next(PollEnd::Failed(&cut), 300, MINUTE, later, 0.0);
        assert_eq!(retry.next(PollEnd::Unchanged, 0, Duration::ZERO, later, 0.5).wait_seconds, 0);
        // And if it is answered, that is over.
        let later = later + HOLD_RETRY_INTERVAL;
        retry.next(PollEnd::Unchanged, 0, Duration::ZERO, later, 0.5);
        assert_eq!(retry.next(PollEnd::Unchanged, 300, MINUTE, later, 0.5).wait_seconds, MAX_WAIT_SECONDS);
        assert!(!retry.by_interval());
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
        assert!(!retry.by_interval());
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
        assert_eq!(next(PollEnd::Changed, Duration::ZERO), REPORT_WAIT);
        retry.set_wait_seconds(0);
        let ask = retry.next(PollEnd::Changed, 0, Duration::ZERO, now, 0.5);
        assert_eq!(ask, NextPoll { after: MINUTE, reports: false, wait_seconds: 0 });
    }

    #[test]
    fn retry_after_is_the_shortest_wait() {
        let busy = Failure { retry_after: Some(Duration::from_secs(2)), ..failure(FailureKind::Busy) };
        assert_eq!(retry_wait(&busy, 1, 0.0), Duration::from_secs(2));
        assert_eq!(retry_wait(&busy, 9, 1.0), Duration::from_secs(4));
        let years = Failure { retry_after: Some(Duration::from_secs(1 << 40)), ..failure(FailureKind::Busy) };
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
