//! When the server last confirmed what is known of one kind, and whether something may have been missed since.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// How long an interruption may last that does not matter: proxies cut streams every now and then.
const MAX_BRIEF_INTERRUPTION: Duration = Duration::from_secs(5);
/// Failures in a row after which nothing waits for a list any more: enough that an API server that is away for some seconds does not count.
const HOPELESS_FAILURES: u32 = 10;
/// How often a watch that namespaces share is listed again at most, because one of them has room for what was left out.
const SHARED_RELIST_INTERVAL: Duration = Duration::from_mins(10);

/// The health of one watch.
#[derive(Clone, Debug)]
pub struct WatchHealth {
    /// What is followed.
    pub what: &'static str,
    /// Time between two lists that are not urgent.
    relist: Duration,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    began: Instant,
    /// Milliseconds after `began`, plus one; 0 is never.
    last: AtomicU64,
    sight: Mutex<Sight>,
    /// Whether the last answer was that Nudge has no right.
    forbidden: AtomicBool,
    /// Failures since the server last confirmed anything.
    failures: AtomicU32,
    /// All objects are to be listed again, now or when it is time.
    relist_now: AtomicBool,
    relist_later: AtomicBool,
    ask: Notify,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sight {
    /// Since when something may have been missed.
    doubted: Option<Instant>,
    /// All until then is known.
    confirmed: Option<Instant>,
    /// When the last doubt ended that was not brief.
    blind: Option<Instant>,
    /// When the last list began.
    listed: Option<Instant>,
}

impl Sight {
    fn confirm(&mut self, until: Instant, now: Instant) {
        self.blind = self.last_blind(now);
        self.doubted = None;
        self.confirmed = self.confirmed.max(Some(until));
    }

    fn last_blind(&self, now: Instant) -> Option<Instant> {
        let blind = self.doubted.is_some_and(|since| now.saturating_duration_since(since) > MAX_BRIEF_INTERRUPTION);
        if blind { Some(now) } else { self.blind }
    }
}

impl WatchHealth {
    /// The health of a watch that has not heard from the server yet.
    pub fn new(what: &'static str) -> Self {
        let shared = Shared {
            began: Instant::now(),
            last: AtomicU64::default(),
            sight: Mutex::default(),
            forbidden: AtomicBool::default(),
            failures: AtomicU32::default(),
            relist_now: AtomicBool::default(),
            relist_later: AtomicBool::default(),
            ask: Notify::new(),
        };
        Self { what, relist: Duration::ZERO, shared: Arc::new(shared) }
    }

    /// The health of a watch that namespaces share: none of them may have all of them listed again and again.
    pub(crate) fn of_all(what: &'static str) -> Self {
        Self { relist: SHARED_RELIST_INTERVAL, ..Self::new(what) }
    }

    fn sight(&self) -> MutexGuard<'_, Sight> {
        self.shared.sight.lock()
    }

    /// The server has sent something.
    pub(crate) fn beat(&self) {
        let millis = u64::try_from(self.shared.began.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.shared.last.store(millis + 1, Ordering::Relaxed);
        self.allow();
    }

    /// How long ago the server sent something; `None` before the first time.
    pub fn age(&self) -> Option<Duration> {
        let last = self.shared.last.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.shared.began.elapsed().saturating_sub(Duration::from_millis(last)))
    }

    /// The server has answered that Nudge has no right.
    pub(crate) fn forbid(&self) {
        self.shared.forbidden.store(true, Ordering::Relaxed);
    }

    /// The server has shown it.
    pub(crate) fn allow(&self) {
        self.shared.forbidden.store(false, Ordering::Relaxed);
    }

    /// Nudge has no right to watch this, by the server's last answer.
    pub fn is_forbidden(&self) -> bool {
        self.shared.forbidden.load(Ordering::Relaxed)
    }

    /// Records how many times in a row the watch has failed.
    pub(crate) fn record_failures(&self, times: u32) {
        self.shared.failures.store(times, Ordering::Relaxed);
    }

    /// Whether the watch has failed so often in a row that others must not wait for it.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.shared.failures.load(Ordering::Relaxed) >= HOPELESS_FAILURES
    }

    /// From now on something may be missed.
    pub(crate) fn doubt(&self) {
        self.sight().doubted.get_or_insert_with(Instant::now);
    }

    /// The server has confirmed that all until then is known. An event alone does not: there may be more behind it.
    pub(crate) fn confirm(&self, until: Instant) {
        self.shared.failures.store(0, Ordering::Relaxed);
        self.sight().confirm(until, Instant::now());
    }

    /// Something may have been missed.
    pub fn is_doubted(&self) -> bool {
        self.sight().doubted.is_some()
    }

    /// All until then is known.
    pub fn is_confirmed(&self, until: Instant) -> bool {
        let sight = *self.sight();
        sight.doubted.is_none() && sight.confirmed.is_some_and(|confirmed| confirmed >= until)
    }

    /// When it was last in doubt for longer than a moment.
    pub(crate) fn last_blind(&self) -> Option<Instant> {
        self.sight().last_blind(Instant::now())
    }

    /// Asks the server to confirm what is known, also while waiting after a failure.
    pub(crate) fn ask(&self) {
        self.shared.ask.notify_one();
    }

    pub(crate) async fn wait_for_ask(&self) {
        self.shared.ask.notified().await;
    }

    /// Has all objects listed again at once.
    pub(crate) fn request_relist(&self) {
        self.shared.relist_now.store(true, Ordering::Relaxed);
        self.ask();
    }

    /// Has all objects listed again when a watch ends, once it is time.
    pub(crate) fn request_relist_later(&self) {
        self.shared.relist_later.store(true, Ordering::Relaxed);
    }

    pub(crate) fn needs_relist(&self) -> bool {
        self.needs_relist_at(Instant::now())
    }

    fn needs_relist_at(&self, now: Instant) -> bool {
        let later = || self.shared.relist_later.load(Ordering::Relaxed);
        let is_time = || self.sight().listed.is_none_or(|at| now.saturating_duration_since(at) >= self.relist);
        self.shared.relist_now.load(Ordering::Relaxed) || later() && is_time()
    }

    /// A list begins.
    pub(crate) fn list_started(&self) {
        self.shared.relist_now.store(false, Ordering::Relaxed);
        self.shared.relist_later.store(false, Ordering::Relaxed);
        self.sight().listed = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_has_an_age_from_its_first_beat_on() {
        let health = WatchHealth::new("tests");
        assert_eq!(health.age(), None);
        health.beat();
        assert!(health.age().unwrap() < Duration::from_mins(1));
    }

    #[test]
    fn a_doubt_lasts_until_the_server_confirms() {
        let (health, start) = (WatchHealth::new("tests"), Instant::now());
        health.confirm(start);
        assert!(health.is_confirmed(start) && !health.is_confirmed(start + Duration::from_secs(1)));
        health.doubt();
        health.beat();
        assert!(health.is_doubted() && !health.is_confirmed(start), "an event may be one of many");
        health.confirm(Instant::now());
        assert!(!health.is_doubted() && health.is_confirmed(start) && health.last_blind().is_none());
    }

    #[test]
    fn one_namespace_does_not_have_all_of_them_listed_again_and_again() {
        let (own, shared) = (WatchHealth::new("tests"), WatchHealth::of_all("tests"));
        for health in [&own, &shared] {
            health.list_started();
            assert!(!health.needs_relist());
            health.request_relist_later();
        }
        assert!(own.needs_relist() && !shared.needs_relist());
        assert!(shared.needs_relist_at(Instant::now() + SHARED_RELIST_INTERVAL));
        shared.request_relist();
        assert!(shared.needs_relist(), "this is urgent");
        shared.list_started();
        assert!(!shared.needs_relist_at(Instant::now() + SHARED_RELIST_INTERVAL));
    }

    #[test]
    fn only_a_long_doubt_is_blindness() {
        let start = Instant::now();
        let mut sight = Sight { doubted: Some(start), ..Sight::default() };
        sight.confirm(start + MAX_BRIEF_INTERRUPTION, start + MAX_BRIEF_INTERRUPTION);
        assert_eq!(sight.blind, None);
        sight.doubted = Some(start);
        let late = start + MAX_BRIEF_INTERRUPTION * 2;
        assert_eq!(sight.last_blind(late), Some(late), "it still is");
        sight.confirm(late, late);
        assert_eq!((sight.doubted, sight.last_blind(late + MAX_BRIEF_INTERRUPTION)), (None, Some(late)));
    }
}
