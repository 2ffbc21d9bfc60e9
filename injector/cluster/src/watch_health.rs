//! The health of a watch: when the server last confirmed the known objects of one kind, and whether changes may have
//! been missed since.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// The maximum length of an interruption that does not matter: proxies cut streams every now and then.
const MAX_BRIEF_INTERRUPTION: Duration = Duration::from_secs(5);
/// The number of failures in a row after which nothing waits for a list. An API server that is away for some seconds
/// causes fewer failures.
const MIN_HOPELESS_FAILURES: u32 = 10;
/// The minimum time between two lists of a watch that namespaces share. Such a list is made when one of them has room
/// for objects that were left out.
const SHARED_RELIST_INTERVAL: Duration = Duration::from_mins(10);

/// The health of one watch.
#[derive(Clone, Debug)]
pub struct WatchHealth {
    /// The kind, as messages and metrics name it, such as `pods`.
    pub what: &'static str,
    /// The minimum time between two lists that are not urgent.
    relist_interval: Duration,
    shared: Arc<SharedHealth>,
}

#[derive(Debug, Default)]
struct SharedHealth {
    state: Mutex<HealthState>,
    request: Notify,
}

/// Whether all objects are to be listed again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Relist {
    #[default]
    No,
    /// After the minimum time.
    Later,
    Now,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct HealthState {
    /// The time when the server last sent something.
    answered_at: Option<Instant>,
    /// Whether the last answer was that Nudge has no right.
    forbidden: bool,
    /// The number of failures since the server last confirmed anything.
    failures: u32,
    relist: Relist,
    /// The time since which something may have been missed.
    doubted_since: Option<Instant>,
    /// The time until which everything is known.
    confirmed_until: Option<Instant>,
    /// The end of the last doubt that was not brief.
    blind_until: Option<Instant>,
    /// The beginning of the last list.
    listed_at: Option<Instant>,
}

impl HealthState {
    fn confirm(&mut self, until: Instant, now: Instant) {
        self.blind_until = self.last_blind(now);
        self.doubted_since = None;
        self.confirmed_until = self.confirmed_until.max(Some(until));
        self.failures = 0;
    }

    fn last_blind(&self, now: Instant) -> Option<Instant> {
        let is_blind =
            self.doubted_since.is_some_and(|since| now.saturating_duration_since(since) > MAX_BRIEF_INTERRUPTION);
        if is_blind { Some(now) } else { self.blind_until }
    }
}

impl WatchHealth {
    /// Returns the health of a watch that has not heard from the server yet.
    pub fn new(what: &'static str) -> Self {
        Self { what, relist_interval: Duration::ZERO, shared: Arc::default() }
    }

    /// Returns the health of a watch that namespaces share: none may have all of them listed again and again.
    pub(crate) fn shared(what: &'static str) -> Self {
        Self { relist_interval: SHARED_RELIST_INTERVAL, ..Self::new(what) }
    }

    fn state(&self) -> MutexGuard<'_, HealthState> {
        self.shared.state.lock()
    }

    /// Notes that the server has sent something.
    pub(crate) fn note_answer(&self) {
        let mut state = self.state();
        (state.answered_at, state.forbidden) = (Some(Instant::now()), false);
    }

    /// Returns how long ago the server sent something; `None` before the first time.
    pub fn age(&self) -> Option<Duration> {
        Some(self.state().answered_at?.elapsed())
    }

    /// Notes whether the server has answered that Nudge has no right.
    pub(crate) fn set_forbidden(&self, forbidden: bool) {
        self.state().forbidden = forbidden;
    }

    /// Returns whether Nudge has no right to watch this, by the server's last answer.
    pub fn is_forbidden(&self) -> bool {
        self.state().forbidden
    }

    /// Notes how many times in a row the watch has failed.
    pub(crate) fn note_failures(&self, failures: u32) {
        self.state().failures = failures;
    }

    /// Returns whether the watch has failed so often in a row that others must not wait for it.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.state().failures >= MIN_HOPELESS_FAILURES
    }

    /// Notes that from now on something may be missed.
    pub(crate) fn doubt(&self) {
        self.state().doubted_since.get_or_insert_with(Instant::now);
    }

    /// Notes that the server has confirmed everything until then. An event alone does not confirm, since more may
    /// follow.
    pub(crate) fn confirm(&self, until: Instant) {
        self.state().confirm(until, Instant::now());
    }

    /// Returns whether something may have been missed.
    pub fn is_doubted(&self) -> bool {
        self.state().doubted_since.is_some()
    }

    /// Returns whether everything until then is known.
    pub fn is_confirmed(&self, until: Instant) -> bool {
        let state = *self.state();
        state.doubted_since.is_none() && state.confirmed_until.is_some_and(|confirmed| confirmed >= until)
    }

    /// Returns when the watch was last in doubt for longer than a moment.
    pub(crate) fn last_blind(&self) -> Option<Instant> {
        self.state().last_blind(Instant::now())
    }

    /// Asks the server to confirm the known objects, also while the watch waits after a failure.
    pub(crate) fn request_answer(&self) {
        self.shared.request.notify_one();
    }

    pub(crate) async fn wait_for_request(&self) {
        self.shared.request.notified().await;
    }

    /// Has all objects listed again at once.
    pub(crate) fn request_relist(&self) {
        self.state().relist = Relist::Now;
        self.request_answer();
    }

    /// Has all objects listed again when a watch ends, after the minimum time.
    pub(crate) fn request_relist_later(&self) {
        let mut state = self.state();
        state.relist = state.relist.max(Relist::Later);
    }

    pub(crate) fn needs_relist(&self) -> bool {
        self.needs_relist_at(Instant::now())
    }

    fn needs_relist_at(&self, now: Instant) -> bool {
        let state = *self.state();
        let is_old = |listed_at: Instant| now.saturating_duration_since(listed_at) >= self.relist_interval;
        match state.relist {
            Relist::No => false,
            Relist::Later => state.listed_at.is_none_or(is_old),
            Relist::Now => true,
        }
    }

    /// Notes that a list begins.
    pub(crate) fn begin_list(&self) {
        let mut state = self.state();
        (state.relist, state.listed_at) = (Relist::No, Some(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_has_an_age_from_its_first_answer_on() {
        let health = WatchHealth::new("tests");
        assert_eq!(health.age(), None);
        health.note_answer();
        assert!(health.age().unwrap() < Duration::from_mins(1));
    }

    #[test]
    fn a_doubt_lasts_until_the_server_confirms() {
        let (health, start) = (WatchHealth::new("tests"), Instant::now());
        health.confirm(start);
        assert!(health.is_confirmed(start) && !health.is_confirmed(start + Duration::from_secs(1)));
        health.doubt();
        health.note_answer();
        assert!(health.is_doubted() && !health.is_confirmed(start), "an event may be one of many");
        health.confirm(Instant::now());
        assert!(!health.is_doubted() && health.is_confirmed(start) && health.last_blind().is_none());
    }

    #[test]
    fn one_namespace_does_not_have_all_of_them_listed_again_and_again() {
        let (own, shared) = (WatchHealth::new("tests"), WatchHealth::shared("tests"));
        for health in [&own, &shared] {
            health.begin_list();
            assert!(!health.needs_relist());
            health.request_relist_later();
        }
        assert!(own.needs_relist() && !shared.needs_relist());
        assert!(shared.needs_relist_at(Instant::now() + SHARED_RELIST_INTERVAL));
        shared.request_relist();
        assert!(shared.needs_relist(), "this is urgent");
        shared.begin_list();
        assert!(!shared.needs_relist_at(Instant::now() + SHARED_RELIST_INTERVAL));
    }

    #[test]
    fn only_a_long_doubt_is_blindness() {
        let start = Instant::now();
        let mut state = HealthState { doubted_since: Some(start), ..HealthState::default() };
        state.confirm(start + MAX_BRIEF_INTERRUPTION, start + MAX_BRIEF_INTERRUPTION);
        assert_eq!(state.blind_until, None);
        state.doubted_since = Some(start);
        let late = start + MAX_BRIEF_INTERRUPTION * 2;
        assert_eq!(state.last_blind(late), Some(late), "it still is");
        state.confirm(late, late);
        assert_eq!((state.doubted_since, state.last_blind(late + MAX_BRIEF_INTERRUPTION)), (None, Some(late)));
    }
}
