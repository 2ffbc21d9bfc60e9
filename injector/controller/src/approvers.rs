//! What the API server has said of the rights of users who have decided about versions, and for how long that counts.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use nudge_core::keys::ConfigKey;

/// How long an answer counts before it is asked for again.
const FRESH: Duration = Duration::from_secs(10);
/// How long it counts at most, where the API server does not answer again.
const OLDEST: Duration = Duration::from_mins(1);
/// For how long nothing is said of answers that are missing and under way.
const UNSAID: Duration = Duration::from_secs(10);
/// Most answers that are kept.
const KEPT: usize = 4096;

/// A user who has decided about versions of a config.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Approver {
    pub(super) config: ConfigKey,
    pub(super) user: String,
    pub(super) groups: Vec<String>,
}

/// Whether users may approve, as the API server has said.
#[derive(Debug, Default)]
pub(super) struct Approvers {
    answers: HashMap<Approver, (Instant, bool)>,
    /// For which configs answers are missing.
    asking: HashMap<ConfigKey, Asking>,
}

/// Answers about the approvers of one config.
#[derive(Debug)]
struct Asking {
    /// Since when they are missing.
    since: Instant,
    /// They are under way.
    under_way: bool,
}

impl Approvers {
    /// What was said of the user, not too long ago.
    pub(super) fn may(&self, approver: &Approver) -> Option<bool> {
        self.answers.get(approver).filter(|(at, _)| at.elapsed() < OLDEST).map(|(_, may)| *may)
    }

    /// What was last said of the user, however long ago.
    pub(super) fn could(&self, approver: &Approver) -> Option<bool> {
        self.answers.get(approver).map(|(_, may)| *may)
    }

    /// Answers about this config are asked for. Returns whether they were not under way already.
    pub(super) fn begin(&mut self, key: &ConfigKey, now: Instant) -> bool {
        let asking = self.asking.entry(key.clone()).or_insert(Asking { since: now, under_way: false });
        !std::mem::replace(&mut asking.under_way, true)
    }

    /// They are not under way any more. Where some did not come, they are missing since the beginning.
    pub(super) fn end(&mut self, key: &ConfigKey, all: bool) {
        if all {
            self.asking.remove(key);
        } else if let Some(asking) = self.asking.get_mut(key) {
            asking.under_way = false;
        }
    }

    /// Nothing is missing: nothing is asked for, or the config is gone.
    pub(super) fn rest(&mut self, key: &ConfigKey) {
        if self.asking.get(key).is_some_and(|asking| !asking.under_way) {
            self.asking.remove(key);
        }
    }

    /// For how long from now on nothing is said of answers that are missing, if they are.
    pub(super) fn awaited(&self, key: &ConfigKey, now: Instant) -> Option<Duration> {
        let since = self.asking.get(key)?.since;
        UNSAID.checked_sub(now.saturating_duration_since(since)).filter(|left| !left.is_zero())
    }

    /// Whether it need not be asked for again.
    pub(super) fn is_fresh(&self, approver: &Approver) -> bool {
        self.answers.get(approver).is_some_and(|(at, _)| at.elapsed() < FRESH)
    }

    /// Keeps an answer, where there is room. Returns whether there was.
    pub(super) fn keep(&mut self, approver: Approver, may: bool) -> bool {
        if self.answers.len() >= KEPT {
            self.answers.retain(|_, (at, _)| at.elapsed() < OLDEST);
        }
        let keeps = self.answers.len() < KEPT || self.answers.contains_key(&approver);
        if keeps {
            self.answers.insert(approver, (Instant::now(), may));
        }
        keeps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bob(groups: &[&str]) -> Approver {
        let config = ConfigKey::parse("team", "shop").unwrap();
        Approver { config, user: "bob".to_owned(), groups: groups.iter().map(|it| (*it).to_owned()).collect() }
    }

    #[test]
    fn an_answer_is_of_one_user_with_these_groups() {
        let mut approvers = Approvers::default();
        approvers.keep(bob(&["devs"]), true);
        approvers.keep(bob(&[]), false);
        assert_eq!((approvers.may(&bob(&["devs"])), approvers.may(&bob(&[]))), (Some(true), Some(false)));
        assert_eq!((approvers.may(&bob(&["ops"])), approvers.is_fresh(&bob(&["ops"]))), (None, false));
        assert!(approvers.is_fresh(&bob(&[])));
    }

    #[test]
    fn an_old_answer_is_none() {
        let mut approvers = Approvers::default();
        let ago = |time: Duration| Instant::now().checked_sub(time).unwrap();
        approvers.answers.insert(bob(&[]), (ago(FRESH), true));
        assert_eq!((approvers.is_fresh(&bob(&[])), approvers.may(&bob(&[]))), (false, Some(true)));
        approvers.answers.insert(bob(&[]), (ago(OLDEST), true));
        assert_eq!((approvers.may(&bob(&[])), approvers.could(&bob(&[]))), (None, Some(true)));
    }

    #[test]
    fn what_is_missing_is_not_said_for_so_long_however_often_it_is_asked_for() {
        let (mut approvers, key, begin) = (Approvers::default(), bob(&[]).config, Instant::now());
        let after = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(approvers.awaited(&key, begin), None);
        assert!(approvers.begin(&key, begin) && !approvers.begin(&key, after(1)));
        assert_eq!(approvers.awaited(&key, after(4)), Some(Duration::from_secs(6)));
        approvers.end(&key, false);
        assert!(approvers.begin(&key, after(8)), "again");
        assert_eq!(approvers.awaited(&key, after(9)), Some(Duration::from_secs(1)));
        assert_eq!((approvers.awaited(&key, after(10)), approvers.awaited(&key, after(99))), (None, None));
        approvers.end(&key, true);
        assert!(approvers.begin(&key, after(100)));
        assert_eq!(approvers.awaited(&key, after(100)), Some(UNSAID), "of the next time");
        approvers.rest(&key);
        assert!(approvers.awaited(&key, after(100)).is_some(), "under way");
        approvers.end(&key, false);
        approvers.rest(&key);
        assert!(approvers.asking.is_empty());
    }

    #[test]
    fn so_many_are_kept() {
        let mut approvers = Approvers::default();
        assert!((0..KEPT).all(|number| approvers.keep(bob(&[&number.to_string()]), true)));
        assert!(!approvers.keep(bob(&["one more"]), true));
        assert_eq!(approvers.answers.len(), KEPT);
        approvers.keep(bob(&["0"]), false);
        assert_eq!(approvers.may(&bob(&["0"])), Some(false), "one that is known is replaced");
    }
}
