//! When the hub is asked next, and how. Pure: time and chance are arguments.
//!
//! Agents must not come in step: after a lost connection each waits a random part of a window that doubles with every
//! failure. A reply, on the other hand, is followed by the next poll at once.

use std::time::Duration;

use nudge_protocol::hub::MAX_WAIT_SECONDS;
use tokio::time::Instant;

use super::failure::{Failure, Kind};

/// A held poll that ends sooner than this was not cut by something on the way that has no patience: the hub has gone.
const HELD: Duration = Duration::from_secs(5);
/// A held poll that is answered sooner with nothing was not held.
const HASTY: Duration = Duration::from_millis(500);
/// After so many held polls in a row that were cut, polls are not held any more.
const CUTS: u32 = 3;
/// When a held poll is tried again.
const HOLD_AGAIN: Duration = Duration::from_mins(10);
/// The longest wait that a hub can ask for by `Retry-After`.
const LONGEST_RETRY_AFTER: Duration = Duration::from_mins(1);

/// The next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// How long until it is sent.
    pub after: Duration,
    /// The wait to ask the hub for, in seconds.
    pub wait_seconds: u32,
}

/// How a poll has ended.
#[derive(Clone, Copy, Debug)]
pub enum Ended<'a> {
    /// With a reply that has changed something.
    News,
    /// With a reply that has changed nothing: what the agent tells is not what this hub wants to hear.
    Repeated,
    /// With the answer that nothing differs.
    Unchanged,
    /// With a failure.
    Failed(&'a Failure),
}

/// Decides about the next poll.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Between polls that are not held.
    interval: Duration,
    /// What the hub wants to be asked for.
    wait_seconds: u32,
    /// Failures since the last answer.
    failures: u32,
    /// Held polls in a row that were cut.
    cuts: u32,
    /// Polls are not held until then.
    unheld_until: Option<Instant>,
    /// Answers in a row that came at once and said nothing.
    idle: u32,
}

impl Pace {
    /// Nothing was asked yet.
    pub fn new(interval: Duration) -> Self {
        Self { interval, wait_seconds: MAX_WAIT_SECONDS, failures: 0, cuts: 0, unheld_until: None, idle: 0 }
    }

    /// The hub's wish.
    pub fn wait_seconds(&mut self, seconds: u32) {
        self.wait_seconds = seconds.min(MAX_WAIT_SECONDS);
    }

    /// Failures since the last answer.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Whether polls are repeated and not held, since held ones were cut.
    pub fn by_interval(&self) -> bool {
        self.unheld_until.is_some()
    }

    /// The first request: whether there is contact should be known soon, so it is not held.
    pub fn first() -> Ask {
        Ask { after: Duration::ZERO, wait_seconds: 0 }
    }

    /// A poll that asked for `asked` seconds and took `took` has ended at `now`. `random` is between 0 and 1.
    pub fn next(&mut self, ended: Ended<'_>, asked: u32, took: Duration, now: Instant, random: f64) -> Ask {
        match ended {
            Ended::News | Ended::Repeated | Ended::Unchanged => {
                self.failures = 0;
                if asked > 0 {
                    self.cuts = 0;
                    self.unheld_until = None;
                }
                let unheld = self.unheld_until.is_some_and(|until| now < until) || self.wait_seconds == 0;
                let hasty = asked > 0 && took < HASTY && matches!(ended, Ended::Unchanged);
                self.idle = if hasty || matches!(ended, Ended::Repeated) { self.idle.saturating_add(1) } else { 0 };
                match self.idle {
                    // Else agent and hub would keep each other busy.
                    1.. => Ask {
                        after: window(1, 30, self.idle).mul_f64(0.5 + random / 2.0),
                        wait_seconds: self.wait_seconds,
                    },
                    0 if unheld => {
                        // A tenth more or less, so that agents spread.
                        Ask { after: self.interval.mul_f64(0.9 + random / 5.0), wait_seconds: 0 }
                    }
                    0 => Ask { after: Duration::ZERO, wait_seconds: self.wait_seconds },
                }
            }
            Ended::Failed(failure) => {
                self.failures = self.failures.saturating_add(1);
                if asked > 0 && took >= HELD && was_cut(failure) {
                    self.cuts = self.cuts.saturating_add(1);
                    if self.cuts >= CUTS {
                        self.unheld_until = Some(now + HOLD_AGAIN);
                    }
                }
                // The next poll is not held: its answer shows that there is contact again.
                Ask { after: pause(failure, self.failures, random), wait_seconds: 0 }
            }
        }
    }
}

/// Whether something on the way may have ended a held poll.
fn was_cut(failure: &Failure) -> bool {
    matches!(failure.kind, Kind::Lost | Kind::TimedOut | Kind::Status)
}

/// `first` seconds at the first time, twice as much at each further one, `longest` in the end.
fn window(first: u64, longest: u64, times: u32) -> Duration {
    let doublings = times.saturating_sub(1).min(16);
    Duration::from_secs((first << doublings).min(longest))
}

/// How long to wait after the `failures`-th failure in a row (counted from 1). `random` is between 0 and 1.
pub fn pause(failure: &Failure, failures: u32, random: f64) -> Duration {
    let window = |first, longest| window(first, longest, failures);
    match failure.kind {
        Kind::Unreachable | Kind::Tls | Kind::Lost | Kind::TimedOut | Kind::Status => window(1, 30).mul_f64(random),
        Kind::Busy => match failure.retry_after {
            // As long as the hub asks for at the least, and not all at that moment.
            Some(wait) if !wait.is_zero() => wait.min(LONGEST_RETRY_AFTER).mul_f64(1.0 + random),
            _ => window(1, 30).mul_f64(random),
        },
        Kind::Unauthorized | Kind::Malformed | Kind::Local => window(1, 60).mul_f64(0.5 + random / 2.0),
        // Only an admin can change that.
        Kind::Forbidden => window(30, 300).mul_f64(0.5 + random / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn failure(kind: Kind) -> Failure {
        Failure::new(kind, "")
    }

    const LONG: Duration = Duration::from_mins(1);

    #[test]
    fn an_answer_is_followed_by_a_held_poll_at_once() {
        let mut pace = Pace::new(LONG);
        pace.wait_seconds(40);
        let now = Instant::now();
        let lost = failure(Kind::Lost);
        let ask = pace.next(Ended::Failed(&lost), 0, Duration::ZERO, now, 0.5);
        assert_eq!(ask, Ask { after: Duration::from_millis(500), wait_seconds: 0 });
        let ask = pace.next(Ended::Unchanged, 0, Duration::ZERO, now, 0.5);
        assert_eq!(ask, Ask { after: Duration::ZERO, wait_seconds: 40 });
        assert_eq!(pace.failures(), 0);
        pace.wait_seconds(100_000);
        assert_eq!(pace.next(Ended::Unchanged, 40, LONG, now, 0.5).wait_seconds, MAX_WAIT_SECONDS);
    }

    #[test]
    fn polls_that_are_cut_again_and_again_are_not_held_for_a_while() {
        let mut pace = Pace::new(Duration::from_secs(30));
        let start = Instant::now();
        let cut = failure(Kind::Lost);
        for _ in 0..CUTS {
            assert!(!pace.by_interval());
            pace.next(Ended::Failed(&cut), 300, LONG, start, 0.0);
            pace.next(Ended::Unchanged, 0, Duration::ZERO, start, 0.0);
        }
        assert!(pace.by_interval());
        let ask = pace.next(Ended::Unchanged, 0, Duration::ZERO, start, 0.5);
        assert_eq!(ask, Ask { after: Duration::from_secs(30), wait_seconds: 0 });
        // After a while one is held again; if it is cut too, it is back to the interval at once.
        let later = start + HOLD_AGAIN;
        assert_eq!(pace.next(Ended::Unchanged, 0, Duration::ZERO, later, 0.5).wait_seconds, MAX_WAIT_SECONDS);
        pace.next(Ended::Failed(&cut), 300, LONG, later, 0.0);
        assert_eq!(pace.next(Ended::Unchanged, 0, Duration::ZERO, later, 0.5).wait_seconds, 0);
        // And if it is answered, that is over.
        let later = later + HOLD_AGAIN;
        pace.next(Ended::Unchanged, 0, Duration::ZERO, later, 0.5);
        assert_eq!(pace.next(Ended::Unchanged, 300, LONG, later, 0.5).wait_seconds, MAX_WAIT_SECONDS);
        assert!(!pace.by_interval());
    }

    #[test]
    fn a_hub_that_goes_is_not_taken_for_something_that_cuts() {
        let mut pace = Pace::new(LONG);
        for kind in [Kind::Unreachable, Kind::Busy, Kind::Unauthorized, Kind::Malformed] {
            for _ in 0..10 {
                pace.next(Ended::Failed(&failure(kind)), 300, LONG, Instant::now(), 0.0);
            }
        }
        for _ in 0..10 {
            pace.next(Ended::Failed(&failure(Kind::Lost)), 300, Duration::from_secs(1), Instant::now(), 0.0);
        }
        assert!(!pace.by_interval());
    }

    #[test]
    fn a_hub_that_answers_at_once_with_nothing_is_not_asked_at_once_again() {
        let mut pace = Pace::new(LONG);
        let now = Instant::now();
        let mut next = |ended, took| pace.next(ended, 300, took, now, 1.0).after;
        assert_eq!(next(Ended::Repeated, Duration::ZERO), Duration::from_secs(1));
        assert_eq!(next(Ended::Unchanged, Duration::ZERO), Duration::from_secs(2));
        assert_eq!(next(Ended::Unchanged, LONG), Duration::ZERO);
        assert_eq!(next(Ended::Repeated, LONG), Duration::from_secs(1));
        assert_eq!(next(Ended::News, Duration::ZERO), Duration::ZERO);
        pace.wait_seconds(0);
        let ask = pace.next(Ended::News, 0, Duration::ZERO, now, 0.5);
        assert_eq!(ask, Ask { after: LONG, wait_seconds: 0 });
    }

    #[test]
    fn the_hubs_own_wish_is_the_least() {
        let busy = Failure { retry_after: Some(Duration::from_secs(2)), ..failure(Kind::Busy) };
        assert_eq!(pause(&busy, 1, 0.0), Duration::from_secs(2));
        assert_eq!(pause(&busy, 9, 1.0), Duration::from_secs(4));
        let years = Failure { retry_after: Some(Duration::from_secs(1 << 40)), ..failure(Kind::Busy) };
        assert_eq!(pause(&years, 1, 1.0), Duration::from_mins(2));
    }

    proptest! {
        #[test]
        fn pauses_have_bounds_by_kind(at in 0..Kind::ALL.len(), failures in 0u32..10_000, random in 0.0f64..=1.0) {
            let kind = Kind::ALL[at];
            let pause = pause(&failure(kind), failures, random);
            let (least, most) = match kind {
                Kind::Forbidden => (15, 300),
                Kind::Unauthorized | Kind::Malformed | Kind::Local => (0, 60),
                _ => (0, 30),
            };
            prop_assert!(pause >= Duration::from_secs(least) && pause <= Duration::from_secs(most), "{:?}", pause);
            if failures <= 1 && kind != Kind::Forbidden { prop_assert!(pause <= Duration::from_secs(1)); }
        }
    }
}
