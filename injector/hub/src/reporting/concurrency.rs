//! Bounds the number of writes that run at the same time: as many as the API server answers quickly. Pure: times are arguments.
//!
//! The limit grows by one with each round of quick answers, and shrinks by a share where the server refuses or is slow (D. Chiu, R. Jain,
//! "Analysis of the Increase and Decrease Algorithms for Congestion Avoidance", 1989). Until it first shrinks, it doubles with each round (V.
//! Jacobson, "Congestion Avoidance and Control", 1988). Slow is measured by the quickest answers of the last minute, as TCP Vegas does, and
//! <https://github.com/Netflix/concurrency-limits> does in front of services.

use std::time::Duration;

use nudge_protocol::backoff::Backoff;
use tokio::time::Instant;

/// The limit before the first answer.
const FIRST: f64 = 8.0;
/// The highest limit of one replica.
pub(super) const MAX_LIMIT: usize = 64;
/// What is left of the limit when it shrinks.
const SHRINK: f64 = 0.7;
/// An answer is slow that takes this many times as long as the quickest ones.
const SLOW: u32 = 4;
/// No answer within this time is slow, however quick others are: it is noise.
const NOISE_LATENCY: Duration = Duration::from_millis(50);
/// For how long nothing begins after a refusal, which costs the server less time than a write: its limit alone would not spare it.
const REFUSAL_BACKOFF: Backoff = Backoff { first: Duration::from_millis(25), longest: Duration::from_secs(8) };
/// For how long, and as long again, the quickest answer is remembered.
const QUICKEST_ANSWER_WINDOW: Duration = Duration::from_secs(30);

/// The bound of the writes that run at the same time.
#[derive(Debug)]
pub(super) struct Concurrency {
    limit: f64,
    /// When it last shrank. Writes that had begun before say nothing more about it.
    shrank: Option<Instant>,
    /// Refusals in a row.
    refusals: u32,
    /// Until then nothing begins.
    rests: Option<Instant>,
    /// The quickest answers since then, and in the time before that.
    since: Option<Instant>,
    quickest: Option<Duration>,
    before: Option<Duration>,
}

impl Default for Concurrency {
    fn default() -> Self {
        Self { limit: FIRST, shrank: None, refusals: 0, rests: None, since: None, quickest: None, before: None }
    }
}

impl Concurrency {
    /// Returns the limit: at least one.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 1 and 64")]
    pub(super) fn limit(&self) -> usize {
        self.limit as usize
    }

    /// Returns until when nothing begins.
    pub(super) fn rests(&self) -> Option<Instant> {
        self.rests
    }

    /// Takes in that a write was answered that had begun then, while `running` ran.
    pub(super) fn answered(&mut self, began: Instant, running: usize, now: Instant) {
        let took = now.saturating_duration_since(began);
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= QUICKEST_ANSWER_WINDOW) {
            (self.since, self.before, self.quickest) = (Some(now), self.quickest, None);
        }
        let least = |known: Option<Duration>| Some(known.map_or(took, |known| known.min(took)));
        self.quickest = least(self.quickest);
        let quickest = least(self.before).into_iter().chain(self.quickest).min().unwrap_or(took);
        // What began before the last refusal says nothing about now.
        if self.rests.is_none_or(|rests| began >= rests) {
            (self.refusals, self.rests) = (0, None);
        }
        if took > (quickest * SLOW).max(NOISE_LATENCY) {
            self.shrink(began, now);
        } else if running * 2 >= self.limit() {
            // Else the limit has held little back, and nothing shows that the server can do more.
            let step = if self.shrank.is_none() { 1.0 } else { 1.0 / self.limit };
            #[expect(clippy::cast_precision_loss, reason = "it is 64")]
            let max = MAX_LIMIT as f64;
            self.limit = (self.limit + step).min(max);
        }
    }

    /// Takes in that a write was refused that had begun then, because the server has too much to do, or was not answered.
    pub(super) fn refused(&mut self, began: Instant, now: Instant) {
        if self.rests.is_none_or(|rests| began >= rests) {
            self.refusals = self.refusals.saturating_add(1);
            self.rests = Some(now + REFUSAL_BACKOFF.wait(self.refusals));
        }
        self.shrink(began, now);
    }

    /// Takes in that a write was not answered in time that had begun then.
    pub(super) fn shrink(&mut self, began: Instant, now: Instant) {
        if self.shrank.is_none_or(|shrank| began >= shrank) {
            self.limit = (self.limit * SHRINK).max(1.0);
            self.shrank = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use proptest::prelude::*;

    use super::*;

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// A server that does so many writes a second, each in 4 ms at least; those that wait for their turn wait in its queue. It refuses
    /// what comes while `most` run. Returns how many it has done in a second after the first three, and the limits meanwhile.
    fn run(per_second: u64, most: usize) -> (u64, usize, usize) {
        let (start, mut now) = (Instant::now(), Instant::now());
        let mut concurrency = Concurrency::default();
        // When each write that runs is answered, and when it began; and when the server has time for the next.
        let mut running: BinaryHeap<Reverse<(Instant, Instant, bool)>> = BinaryHeap::new();
        let mut free = now;
        let (mut done, mut least, mut greatest) = (0, usize::MAX, 0);
        while now < start + millis(4000) {
            while running.len() < concurrency.limit() && concurrency.rests().is_none_or(|rests| rests <= now) {
                if running.len() >= most {
                    running.push(Reverse((now + millis(1), now, true)));
                } else {
                    free = free.max(now) + Duration::from_secs(1) / u32::try_from(per_second).unwrap();
                    running.push(Reverse((free.max(now + millis(4)), now, false)));
                }
            }
            let at_once = running.len();
            let Some(Reverse((ended, began, refused))) = running.pop() else {
                now = concurrency.rests().unwrap();
                continue;
            };
            now = ended;
            if refused {
                concurrency.refused(began, now);
            } else {
                concurrency.answered(began, at_once, now);
            }
            if now > start + millis(3000) {
                done += u64::from(!refused);
                (least, greatest) = (least.min(concurrency.limit()), greatest.max(concurrency.limit()));
            }
        }
        (done, least, greatest)
    }

    #[test]
    fn a_server_is_used_as_far_as_it_goes_and_not_beyond() {
        // 64 at once are 16,000 a second, which this one can do.
        let (done, least, _) = run(20_000, 1000);
        assert!(done > 15_000 && least == MAX_LIMIT, "{done} {least}");
        // With more than 50 at once its answers take more than 50 ms.
        let (done, least, greatest) = run(1000, 1000);
        assert!(done > 950 && least >= 30 && greatest <= 52, "{done} {least} {greatest}");
        let (done, _, greatest) = run(100, 1000);
        assert!(done > 95 && greatest <= 6, "{done} {greatest}");
        // One that refuses what comes while 10 run.
        let (done, least, greatest) = run(20_000, 10);
        assert!(done > 500 && least >= 5 && greatest <= 11, "{done} {least} {greatest}");
    }

    #[test]
    fn what_began_before_it_shrank_does_not_shrink_it_again() {
        let (mut concurrency, start) = (Concurrency::default(), Instant::now());
        for _ in 0..100 {
            concurrency.refused(start, start + millis(10));
        }
        assert_eq!(concurrency.limit(), 5);
        for number in 2..100 {
            concurrency.refused(start + millis(number * 10), start + millis(number * 10 + 5));
        }
        assert_eq!(concurrency.limit(), 1, "one goes out at any time, to see whether the server is back");
    }

    #[test]
    fn after_a_refusal_nothing_begins_for_a_moment_whatever_else_is_answered() {
        let (mut concurrency, start) = (Concurrency::default(), Instant::now());
        let rest = |concurrency: &Concurrency, now: Instant| concurrency.rests().map(|rests| rests - now);
        concurrency.refused(start, start + millis(10));
        for number in 0..10 {
            // They were in flight.
            concurrency.answered(start + millis(number), 10, start + millis(12 + number));
            concurrency.refused(start + millis(number), start + millis(12 + number));
        }
        assert_eq!(rest(&concurrency, start + millis(10)), Some(REFUSAL_BACKOFF.first));
        concurrency.refused(start + millis(35), start + millis(40));
        concurrency.answered(start + millis(35), 10, start + millis(41));
        assert_eq!(rest(&concurrency, start + millis(40)), Some(REFUSAL_BACKOFF.first * 2), "another one in a row");
        concurrency.answered(start + millis(90), 10, start + millis(95));
        assert_eq!(rest(&concurrency, start), None);
        concurrency.refused(start + millis(96), start + millis(100));
        assert_eq!(rest(&concurrency, start + millis(100)), Some(REFUSAL_BACKOFF.first), "it begins anew");
    }

    #[test]
    fn a_server_that_became_slower_for_good_is_measured_by_itself_after_a_minute() {
        let (mut concurrency, start) = (Concurrency::default(), Instant::now());
        let at = |concurrency: &mut Concurrency, second: u64, took: u64| {
            let now = start + Duration::from_secs(second);
            concurrency.answered(now - millis(took), MAX_LIMIT, now);
            concurrency.limit()
        };
        assert_eq!(at(&mut concurrency, 10, 20), 9);
        assert_eq!(at(&mut concurrency, 11, 100), 6, "five times as long");
        let limits: Vec<usize> = (12..120).map(|second| at(&mut concurrency, second, 100)).collect();
        assert!(limits[..20].iter().any(|limit| *limit <= 2) && limits[107] > 6, "{limits:?}");
    }

    proptest! {
        #[test]
        fn it_stays_within_its_bounds(answers in proptest::collection::vec((0_u64..5000, any::<bool>(), 0_usize..100), 0..300)) {
            let (mut concurrency, mut now) = (Concurrency::default(), Instant::now());
            for (took, refused, running) in answers {
                let began = now;
                now += millis(took);
                if refused { concurrency.refused(began, now) } else { concurrency.answered(began, running, now) }
                prop_assert!((1..=MAX_LIMIT).contains(&concurrency.limit()));
            }
        }
    }
}
