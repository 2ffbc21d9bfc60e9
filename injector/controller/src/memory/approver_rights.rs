//! The answers of the API server about the rights of users who have decided about versions, and for how long each
//! counts.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use nudge_core::keys::ConfigKey;

/// The maximum age of an answer before the API server is asked again.
const MAX_FRESH_AGE: Duration = Duration::from_secs(10);
/// The maximum age of an answer that counts, if the API server does not answer again.
const MAX_AGE: Duration = Duration::from_mins(1);
/// How long the status does not mention missing answers.
const SILENT_PERIOD: Duration = Duration::from_secs(10);
/// The maximum number of answers that are kept.
const MAX_ANSWERS: usize = 4096;

/// A user who has decided about versions of a config.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Approver {
    pub(crate) config: ConfigKey,
    pub(crate) user: String,
    pub(crate) groups: Vec<String>,
}

/// The answers of the API server about the rights of users to approve.
#[derive(Debug, Default)]
pub(crate) struct ApproverRights(HashMap<Approver, (Instant, bool)>);

/// The review of the rights of one config's approvers.
#[derive(Debug, Default)]
pub(crate) struct RightsReview {
    missing_since: Option<Instant>,
    under_way: bool,
}

impl RightsReview {
    /// Notes the beginning of a review. Returns false if one is under way already.
    pub(crate) fn begin(&mut self, now: Instant) -> bool {
        self.missing_since.get_or_insert(now);
        !std::mem::replace(&mut self.under_way, true)
    }

    /// Notes the end of a review. If it is not complete, answers are missing since its beginning.
    pub(crate) fn finish(&mut self, complete: bool) {
        self.under_way = false;
        self.missing_since.take_if(|_| complete);
    }

    /// Notes that no answer is missing, unless a review is under way.
    pub(crate) fn settle(&mut self) {
        self.missing_since.take_if(|_| !self.under_way);
    }

    /// Returns for how long the status says nothing about missing answers.
    pub(crate) fn silent_for(&self, now: Instant) -> Option<Duration> {
        let since = self.missing_since?;
        SILENT_PERIOD.checked_sub(now.saturating_duration_since(since)).filter(|wait| !wait.is_zero())
    }
}

impl ApproverRights {
    /// Returns whether the user may approve, by an answer that is not too old.
    pub(crate) fn may_approve(&self, approver: &Approver) -> Option<bool> {
        self.0.get(approver).filter(|(asked_at, _)| asked_at.elapsed() < MAX_AGE).map(|(_, may)| *may)
    }

    /// Returns whether the user could approve by the last answer, however old it is.
    pub(crate) fn could_approve(&self, approver: &Approver) -> Option<bool> {
        self.0.get(approver).map(|(_, may)| *may)
    }

    /// Returns whether the answer about the user is recent.
    pub(crate) fn is_recent(&self, approver: &Approver) -> bool {
        self.0.get(approver).is_some_and(|(asked_at, _)| asked_at.elapsed() < MAX_FRESH_AGE)
    }

    /// Keeps an answer, if there is room. Returns whether there was.
    pub(crate) fn keep(&mut self, approver: Approver, may: bool) -> bool {
        if self.0.len() >= MAX_ANSWERS {
            self.0.retain(|_, (asked_at, _)| asked_at.elapsed() < MAX_AGE);
        }
        let has_room = self.0.len() < MAX_ANSWERS || self.0.contains_key(&approver);
        if has_room {
            self.0.insert(approver, (Instant::now(), may));
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bob(groups: &[&str]) -> Approver {
        let config = ConfigKey::parse("team", "shop").unwrap();
        Approver { config, user: "bob".to_owned(), groups: groups.iter().map(|group| (*group).to_owned()).collect() }
    }

    #[test]
    fn an_answer_is_of_one_user_with_these_groups() {
        let mut rights = ApproverRights::default();
        rights.keep(bob(&["devs"]), true);
        rights.keep(bob(&[]), false);
        assert_eq!((rights.may_approve(&bob(&["devs"])), rights.may_approve(&bob(&[]))), (Some(true), Some(false)));
        assert_eq!((rights.may_approve(&bob(&["ops"])), rights.is_recent(&bob(&["ops"]))), (None, false));
        assert!(rights.is_recent(&bob(&[])));
    }

    #[test]
    fn an_old_answer_is_none() {
        let mut rights = ApproverRights::default();
        let ago = |time: Duration| Instant::now().checked_sub(time).unwrap();
        rights.0.insert(bob(&[]), (ago(MAX_FRESH_AGE), true));
        assert_eq!((rights.is_recent(&bob(&[])), rights.may_approve(&bob(&[]))), (false, Some(true)));
        rights.0.insert(bob(&[]), (ago(MAX_AGE), true));
        assert_eq!((rights.may_approve(&bob(&[])), rights.could_approve(&bob(&[]))), (None, Some(true)));
    }

    #[test]
    fn what_is_missing_is_not_said_for_so_long_however_often_it_is_requested() {
        let (mut review, begin) = (RightsReview::default(), Instant::now());
        let after = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(review.silent_for(begin), None);
        assert!(review.begin(begin) && !review.begin(after(1)));
        assert_eq!(review.silent_for(after(4)), Some(Duration::from_secs(6)));
        review.finish(false);
        assert!(review.begin(after(8)), "again");
        assert_eq!(review.silent_for(after(9)), Some(Duration::from_secs(1)));
        assert_eq!((review.silent_for(after(10)), review.silent_for(after(99))), (None, None));
        review.finish(true);
        assert!(review.begin(after(100)));
        assert_eq!(review.silent_for(after(100)), Some(SILENT_PERIOD), "of the next time");
        review.settle();
        assert!(review.silent_for(after(100)).is_some(), "under way");
        review.finish(false);
        review.settle();
        assert_eq!(review.silent_for(after(100)), None);
    }

    #[test]
    fn a_limited_number_of_answers_is_kept() {
        let mut rights = ApproverRights::default();
        assert!((0..MAX_ANSWERS).all(|number| rights.keep(bob(&[&number.to_string()]), true)));
        assert!(!rights.keep(bob(&["one more"]), true));
        assert_eq!(rights.0.len(), MAX_ANSWERS);
        rights.keep(bob(&["0"]), false);
        assert_eq!(rights.may_approve(&bob(&["0"])), Some(false), "one that is known is replaced");
    }
}
