//! What the API server has said of the rights of users who have decided about versions, and for how long that counts.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use nudge_core::keys::ConfigKey;

/// How long an answer counts before it is asked for again.
const FRESH: Duration = Duration::from_secs(10);
/// How long it counts at most, where the API server does not answer again.
const OLDEST: Duration = Duration::from_mins(1);
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
    /// For which configs answers are under way.
    pub(super) asking: BTreeSet<ConfigKey>,
}

impl Approvers {
    /// What was said of the user, not too long ago.
    pub(super) fn may(&self, approver: &Approver) -> Option<bool> {
        self.answers.get(approver).filter(|(at, _)| at.elapsed() < OLDEST).map(|(_, may)| *may)
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
        assert_eq!(approvers.may(&bob(&[])), None);
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
