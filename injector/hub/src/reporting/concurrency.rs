//! Limits the number of writes that run at the same time to the number that the API server answers quickly. Times are
//! arguments.
//!
//! The limit grows by one with each round of quick answers, and shrinks by a factor when the server refuses or is slow
//! (D. Chiu, R. Jain, "Analysis of the Increase and Decrease Algorithms for Congestion Avoidance", 1989). Until it
//! first shrinks, it doubles with each round (V. Jacobson, "Congestion Avoidance and Control", 1988). An answer is slow
//! by comparison with the quickest answers of the last minute, as in TCP Vegas, and in
//! <https://github.com/Netflix/concurrency-limits> in front of services.

use std::time::Duration;

use nudge_protocol::backoff::Backoff;
use tokio::time::Instant;

/// The limit before the first answer.
const INITIAL_LIMIT: f64 = 8.0;
/// The maximum limit of one replica.
pub(super) const MAX_LIMIT: usize = 64;
/// The factor that shrinks the limit.
const SHRINK_FACTOR: f64 = 0.7;
/// The multiple of the quickest answer's latency above which an answer is slow.
const SLOW_FACTOR: u32 = 4;
/// The maximum latency that never counts as slow, however quick others are: it may be noise.
const MAX_QUICK_LATENCY: Duration = Duration::from_millis(50);
/// The delays after refusals, which cost the server less time than writes, so that the limit alone would not relieve
/// it.
const REFUSAL_BACKOFF: Backoff = Backoff { first: Duration::from_millis(25), longest: Duration::from_secs(8) };
/// The window whose quickest answer is compared with. The window before it counts, too.
const QUICKEST_ANSWER_WINDOW: Duration = Duration::from_secs(30);

/// The limit of the writes that run at the same time.
#[derive(Debug)]
pub(super) struct Concurrency {
    limit: f64,
    /// The time when the limit last shrank. Writes that began earlier do not shrink it again.
    shrank_at: Option<Instant>,
    /// The number of refusals in a row.
    refusals: u32,
    /// The time until which no write begins.
    paused_until: Option<Instant>,
    /// The beginning of the window.
    window_start: Option<Instant>,
    /// The quickest answer of the window.
    quickest: Option<Duration>,
    /// The quickest answer of the window before.
    previous_quickest: Option<Duration>,
}

impl Default for Concurrency {
    fn default() -> Self {
        Self {
            limit: INITIAL_LIMIT,
            shrank_at: None,
            refusals: 0,
            paused_until: None,
            window_start: None,
            quickest: None,
            previous_quickest: None,
        }
    }
}

impl Concurrency {
    /// Returns the limit: at least 1.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 1 and 64")]
    pub(super) fn limit(&self) -> usize {
        self.limit as usize
    }

    /// Returns the time until which no write begins.
    pub(super) fn paused_until(&self) -> Option<Instant> {
        self.paused_until
    }

    /// Records the answer to a write that began at `began`, while `running` writes ran.
    pub(super) fn record_answer(&mut self, began: Instant, running: usize, now: Instant) {
        let latency = now.saturating_duration_since(began);
        if self.window_start.is_none_or(|start| now.saturating_duration_since(start) >= QUICKEST_ANSWER_WINDOW) {
            (self.window_start, self.previous_quickest, self.quickest) = (Some(now), self.quickest, None);
        }
        self.quickest = Some(self.quickest.map_or(latency, |quickest| quickest.min(latency)));
        let quickest = self.previous_quickest.into_iter().chain(self.quickest).min().unwrap_or(latency);
        // An answer to a write that began before the last refusal is out of date.
        if self.paused_until.is_none_or(|pause_end| began >= pause_end) {
            (self.refusals, self.paused_until) = (0, None);
        }
        if latency > (quickest * SLOW_FACTOR).max(MAX_QUICK_LATENCY) {
            self.shrink(began, now);
        } else if running * 2 >= self.limit() {
            // The limit grows only if it is used, as otherwise nothing shows that the server can do more.
            let step = if self.shrank_at.is_none() { 1.0 } else { 1.0 / self.limit };
            #[expect(clippy::cast_precision_loss, reason = "it is 64")]
            let max = MAX_LIMIT as f64;
            self.limit = (self.limit + step).min(max);
        }
    }

    /// Records the failure of a write that began at `began`: it was refused, because the server has too much to do, or
    /// it could not be sent.
    pub(super) fn record_refusal(&mut self, began: Instant, now: Instant) {
        if self.paused_until.is_none_or(|pause_end| began >= pause_end) {
            self.refusals = self.refusals.saturating_add(1);
            self.paused_until = Some(now + REFUSAL_BACKOFF.wait(self.refusals));
        }
        self.shrink(began, now);
    }

    /// Shrinks the limit because of a write that began at `began`, unless it has shrunk since.
    pub(super) fn shrink(&mut self, began: Instant, now: Instant) {
        if self.shrank_at.is_none_or(|time| began >= time) {
            self.limit = (self.limit * SHRINK_FACTOR).max(1.0);
            self.shrank_at = Some(now);
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

    /// Simulates a server with a rate of `per_second` writes, each of which takes at least 4 ms; further writes wait in
    /// its queue. The server refuses a write while `most` writes run. Returns the writes of one second (after three
    /// seconds), and the least and the greatest limit during that second.
    fn run(per_second: u64, most: usize) -> (u64, usize, usize) {
        let (start, mut now) = (Instant::now(), Instant::now());
        let mut concurrency = Concurrency::default();
        // When each write that runs is answered, and when it began; and when the server has time for the next.
        let mut running: BinaryHeap<Reverse<(Instant, Instant, bool)>> = BinaryHeap::new();
        let mut free = now;
        let (mut done, mut least, mut greatest) = (0, usize::MAX, 0);
        while now < start + millis(4000) {
            while running.len() < concurrency.limit() && concurrency.paused_until().is_none_or(|rests| rests <= now) {
                if running.len() >= most {
                    running.push(Reverse((now + millis(1), now, true)));
                } else {
                    free = free.max(now) + Duration::from_secs(1) / u32::try_from(per_second).unwrap();
                    running.push(Reverse((free.max(now + millis(4)), now, false)));
                }
            }
            let at_once = running.len();
            let Some(Reverse((ended, began, refused))) = running.pop() else {
                now = concurrency.paused_until().unwrap();
                continue;
            };
            now = ended;
            if refused {
                concurrency.record_refusal(began, now);
            } else {
                concurrency.record_answer(began, at_once, now);
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
        // A server that refuses further writes while 10 run.
        let (done, least, greatest) = run(20_000, 10);
        assert!(done > 500 && least >= 5 && greatest <= 11, "{done} {least} {greatest}");
    }

    #[test]
    fn what_began_before_it_shrank_does_not_shrink_it_again() {
        let (mut concurrency, start) = (Concurrency::default(), Instant::now());
        for _ in 0..100 {
            concurrency.record_refusal(start, start + millis(10));
        }
        assert_eq!(concurrency.limit(), 5);
        for number in 2..100 {
            concurrency.record_refusal(start + millis(number * 10), start + millis(number * 10 + 5));
        }
        assert_eq!(concurrency.limit(), 1, "one goes out at any time, to see whether the server is back");
    }

    #[test]
    fn after_a_refusal_nothing_begins_for_a_moment_whatever_else_is_answered() {
        let (mut concurrency, start) = (Concurrency::default(), Instant::now());
        let rest = |concurrency: &Concurrency, now: Instant| concurrency.paused_until().map(|rests| rests - now);
        concurrency.record_refusal(start, start + millis(10));
        for number in 0..10 {
            // These writes were in flight.
            concurrency.record_answer(start + millis(number), 10, start + millis(12 + number));
            concurrency.record_refusal(start + millis(number), start + millis(12 + number));
        }
        assert_eq!(rest(&concurrency, start + millis(10)), Some(REFUSAL_BACKOFF.first));
        concurrency.record_refusal(start + millis(35), start + millis(40));
        concurrency.record_answer(start + millis(35), 10, start + millis(41));
        assert_eq!(rest(&concurrency, start + millis(40)), Some(REFUSAL_BACKOFF.first * 2), "another one in a row");
        concurrency.record_answer(start + millis(90), 10, start + millis(95));
        assert_eq!(rest(&concurrency, start), None);
        concurrency.record_refusal(start + millis(96), start + millis(100));
        assert_eq!(rest(&concurrency, start + millis(100)), Some(REFUSAL_BACKOFF.first), "it begins anew");
    }

    #[test]
    fn a_server_that_became_slower_for_good_is_measured_by_itself_after_a_minute() {
        let (mut concurrency, start) = (Concurrency::default(), Instant::now());
        let at = |concurrency: &mut Concurrency, second: u64, took: u64| {
            let now = start + Duration::from_secs(second);
            concurrency.record_answer(now - millis(took), MAX_LIMIT, now);
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
                if refused { concurrency.record_refusal(began, now) } else { concurrency.record_answer(began, running, now) }
                prop_assert!((1..=MAX_LIMIT).contains(&concurrency.limit()));
            }
        }
    }
}
