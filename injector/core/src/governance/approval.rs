//! The approvals of a version: whether it has all that it needs, and which are missing.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{Approval, ApprovalDecision, Explanation, Reason, Release, ReleaseApproval, clipped};
use nudge_protocol::bounded_text::one_line;
use nudge_protocol::plural::counted;

use super::RuleOwner;
use super::digest::shorten_digest;
use crate::requester::bounded_user;
use crate::rollout::{ClosedGate, Now, SteadyTime};

/// The maximum length of a reason in a message.
const MAX_REASON_BYTES: usize = 128;
/// The maximum number of users that a message names.
const MAX_NAMED_USERS: usize = 4;
/// The interval of counts of approvals if somebody has decided: no watch reports that a right was granted or removed.
const RIGHTS_RECHECK_MILLIS: i64 = 15_000;

/// The message if the author of a version is unknown.
const UNKNOWN_AUTHOR: &str =
    "Nudge does not know who created it, so no approval counts: create it again under another name while Nudge runs";
/// The message if the author of a source's version is unknown: such a version can't get another name.
const UNKNOWN_SETTER: &str = "Nudge does not know who created it or set its source, so no approval counts: run kubectl nudge source sync, and \
                              delete the version: the source makes it again";
/// The message if the user who requested a version is unknown.
const UNKNOWN_REQUESTER: &str = "Nudge does not know who requested it, so no approval counts: set spec.version to another version, and then to this one";

/// The decision of a user, from a `VersionApproval` that admission has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserDecision {
    /// The version that the decision approves or denies.
    pub version: String,
    /// The digest of its content.
    pub digest: String,
    /// The name of the user who decided.
    pub user: String,
    /// Whether the user approves or denies the version.
    pub decision: ApprovalDecision,
    /// The reason that the user gives.
    pub reason: String,
    /// The time of the decision.
    pub at: Time,
    /// The right of the user to approve the config.
    pub right: Right,
}

/// The right of a user to approve a config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// The user has the right now.
    Granted,
    /// The user does not have the right now.
    Refused,
    /// The API server has not answered whether the user has the right now.
    Unanswered {
        /// The last answer, however long ago. It alone never lets a version continue.
        last: Option<bool>,
    },
}

impl Right {
    /// Returns the right by the answer about now and the last answer, if there are such.
    pub fn of(answer: Option<bool>, last: Option<bool>) -> Self {
        match answer {
            Some(true) => Self::Granted,
            Some(false) => Self::Refused,
            None => Self::Unanswered { last },
        }
    }

    /// Returns the right with the last answer, or else `assumed`, if there is no answer about now.
    fn or_last(self, assumed: bool) -> Self {
        match self {
            Self::Unanswered { last } => Self::of(last.or(Some(assumed)), None),
            right => right,
        }
    }

    /// Returns whether the last answer, about now or not, refuses the right.
    pub(crate) fn was_refused(self) -> bool {
        self.or_last(true) == Self::Refused
    }
}

/// The decisions of users about versions of a config.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Approvals {
    /// The decisions that may count.
    pub decisions: Vec<UserDecision>,
    /// The reason why there may be more decisions. Then no version continues, because an unknown decision may be a
    /// denial.
    pub incomplete: Option<String>,
    /// The time until which missing answers about rights are assumed to equal the earlier ones, which let the version
    /// continue. This assumption alone never lets a version continue. It only keeps the config from briefly saying that
    /// it awaits approval.
    pub awaited: Option<SteadyTime>,
}

/// The users who created the parts of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authors {
    /// The parts must be read first.
    Unread,
    /// The creator of a part is not known.
    Unknown,
    /// The creator of a part, or the user who set the source's spec, is not known for a version that a source makes.
    SetterUnknown,
    /// The users are known.
    Known(BTreeSet<String>),
}

/// The user who requested a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownRequester<'a> {
    /// Nobody has requested it: the version is the first one of a config without `spec.version`.
    Nobody,
    /// The user is not known.
    Unknown,
    /// The user with this name has requested the version.
    User(&'a str),
}

/// A version to approve.
#[derive(Clone, Copy, Debug)]
pub struct ApprovalCandidate<'a> {
    /// The config of the version.
    pub config: &'a str,
    /// The name of the version.
    pub version: &'a str,
    /// The digest of the sealed version.
    pub digest: &'a str,
    /// The users who made the version.
    pub authors: &'a Authors,
    /// The user who requested the version.
    pub requester: KnownRequester<'a>,
    /// The owner of the rule that requires approvals.
    pub rule: &'a RuleOwner,
}

/// Returns the approvals that let the version continue, the oldest first; or why it may not.
pub fn check_approvals(
    needed: &Approval,
    candidate: ApprovalCandidate<'_>,
    approvals: &Approvals,
    now: Now<'_>,
) -> Result<Vec<ReleaseApproval>, ClosedGate> {
    let is_about =
        |decision: &&UserDecision| decision.version == candidate.version && decision.digest == candidate.digest;
    let decisions: Vec<&UserDecision> = approvals.decisions.iter().filter(is_about).collect();
    let at = now.time.0;
    count_approvals(needed, candidate, &decisions, approvals.incomplete.as_deref(), at).map_err(|message| {
        let may_change = !approvals.decisions.is_empty() || approvals.incomplete.is_some();
        let why = Reason::AwaitingApproval.explained(clipped(message));
        let awaited = approvals
            .awaited
            .filter(|&until| now.steady < until && would_have_passed(needed, candidate, &decisions, at));
        let recheck_at = awaited.or_else(|| may_change.then(|| now.steady + RIGHTS_RECHECK_MILLIS));
        ClosedGate { why, recheck_at, ends_at: None, keeps_message: awaited.is_some() }
    })
}

/// Returns whether the version would continue with the rights that were last known.
fn would_have_passed(
    needed: &Approval,
    candidate: ApprovalCandidate<'_>,
    decisions: &[&UserDecision],
    at: Timestamp,
) -> bool {
    let with_last_right = |decision: &&UserDecision| {
        // The previous leader may have known rights that this one does not know.
        let assumed = decision.decision == ApprovalDecision::Approve;
        UserDecision { right: decision.right.or_last(assumed), ..(*decision).clone() }
    };
    let before: Vec<UserDecision> = decisions.iter().map(with_last_right).collect();
    count_approvals(needed, candidate, &before.iter().collect::<Vec<_>>(), None, at).is_ok()
}

/// Returns the approvals that count, or a message about the missing ones.
fn count_approvals(
    needed: &Approval,
    candidate: ApprovalCandidate<'_>,
    decisions: &[&UserDecision],
    incomplete: Option<&str>,
    at: Timestamp,
) -> Result<Vec<ReleaseApproval>, String> {
    let ApprovalCandidate { config, version, digest, authors, requester, rule } = candidate;
    if let Some(why) = incomplete {
        return Err(format!("version {version} waits for its approvals to be counted: {why}"));
    }
    let is_denial = |given: &&&UserDecision| given.decision == ApprovalDecision::Deny && given.right != Right::Refused;
    if let Some(denial) = decisions.iter().find(is_denial) {
        let user = bounded_user(&denial.user);
        let reason = one_line(&denial.reason, MAX_REASON_BYTES);
        return Err(format!(
            "{user} denies version {version} ({reason}); it may continue when {user} withdraws that (kubectl nudge deny {config} {version} \
             --undo)"
        ));
    }
    if *authors == Authors::Unread && needed.not_author {
        return Err(format!("version {version} waits for its approvals to be counted: its parts are being read"));
    }
    let mut users: BTreeMap<&str, &UserDecision> = BTreeMap::new();
    // Only the best decision of each user counts: an earlier decision may have its right from a group that the user has
    // left.
    let rank = |given: &UserDecision| {
        (has_run_out(needed, &given.at, at), given.right != Right::Granted, given.right == Right::Refused, given.at.0)
    };
    for &given in decisions.iter().filter(|given| given.decision == ApprovalDecision::Approve) {
        let first = users.entry(&given.user).or_insert(given);
        if rank(given) < rank(first) {
            *first = given;
        }
    }
    let mut counted_decisions = Vec::new();
    let mut excluded = Vec::new();
    for (user, given) in users {
        match find_exclusion(needed, authors, requester, given, at) {
            None => counted_decisions.push(given),
            Some(exclusion) => excluded.push(format!("{} {}", bounded_user(user), exclusion.phrase())),
        }
    }
    counted_decisions.sort_by(|a, b| (a.at.0, &a.user).cmp(&(b.at.0, &b.user)));
    let required = usize::try_from(needed.required).unwrap_or(usize::MAX).max(1);
    if counted_decisions.len() >= required {
        let record =
            |given: &UserDecision| ReleaseApproval { user: bounded_user(&given.user), approval_time: given.at.clone() };
        return Ok(counted_decisions.into_iter().take(Release::MAX_APPROVALS).map(record).collect());
    }
    let remedy = match (authors, requester) {
        (Authors::Unknown, _) if needed.not_author => UNKNOWN_AUTHOR.to_owned(),
        (Authors::SetterUnknown, _) if needed.not_author => UNKNOWN_SETTER.to_owned(),
        (_, KnownRequester::Unknown) if needed.not_author => UNKNOWN_REQUESTER.to_owned(),
        _ => {
            let command = decision_command(ApprovalDecision::Approve, config, version, digest);
            format!(
                "{command}, by a user with the verb approve on the config who has read it (kubectl nudge diff {config} current {version})"
            )
        }
    };
    let approvers = counted_decisions.iter().map(|given| format!("{} approves it", bounded_user(&given.user)));
    let mut users: Vec<String> = approvers.chain(excluded).collect();
    if users.len() > MAX_NAMED_USERS {
        let more = users.len() - MAX_NAMED_USERS;
        users.truncate(MAX_NAMED_USERS);
        users.push(format!("and {more} more"));
    }
    let so_far = if users.is_empty() { String::new() } else { format!("; so far: {}", users.join("; ")) };
    let approvals = counted(required, "approval");
    let requirement = match rule {
        RuleOwner::Config => "it needs".to_owned(),
        RuleOwner::Policy(_) => format!("{rule} requires"),
    };
    // A long message is cut at its end, so the command comes first.
    Err(format!(
        "version {version} has {} of {approvals} that {requirement}; {remedy}{so_far}",
        counted_decisions.len()
    ))
}

/// Returns the command that a user runs to decide about the version with this content.
pub fn decision_command(decision: ApprovalDecision, config: &str, version: &str, digest: &str) -> String {
    match decision {
        ApprovalDecision::Approve => {
            format!("kubectl nudge approve {config} {version} --digest={} --reason=TEXT", shorten_digest(digest))
        }
        ApprovalDecision::Deny => format!("kubectl nudge deny {config} {version} --reason=TEXT"),
    }
}

/// The reason why an approval does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exclusion {
    /// The approval was given too long ago.
    RanOut,
    /// The user does not have the right any more.
    NoRight,
    /// The API server has not answered whether the user has the right.
    NoAnswer,
    /// The user has created a part of the version, or set the spec of the source that made it.
    Author,
    /// The user has requested the version.
    Requester,
    /// Nudge does not know who created the version, or who requested it.
    Unknown,
}

impl Exclusion {
    /// Returns the phrase about the user, which follows the name.
    fn phrase(self) -> &'static str {
        match self {
            Self::RanOut => "approved it, but the approval has run out (validSeconds)",
            Self::NoRight => "may not approve it any more",
            Self::NoAnswer => "approves it, but the API server has not answered whether that user still may",
            Self::Author => "has created a part of it, or set its source",
            Self::Requester => "has requested it",
            Self::Unknown => "approves it",
        }
    }
}

/// Returns why an approval does not count, if it does not.
fn find_exclusion(
    needed: &Approval,
    authors: &Authors,
    requester: KnownRequester<'_>,
    given: &UserDecision,
    at: Timestamp,
) -> Option<Exclusion> {
    let user = given.user.as_str();
    if has_run_out(needed, &given.at, at) {
        return Some(Exclusion::RanOut);
    }
    match given.right {
        Right::Refused => return Some(Exclusion::NoRight),
        Right::Unanswered { .. } => return Some(Exclusion::NoAnswer),
        Right::Granted if !needed.not_author => return None,
        Right::Granted => {}
    }
    match (authors, requester) {
        (Authors::Known(authors), _) if authors.contains(user) => Some(Exclusion::Author),
        // The name of the requester is kept with a bounded length.
        (_, KnownRequester::User(requester)) if requester == bounded_user(user) => Some(Exclusion::Requester),
        (Authors::Known(_), KnownRequester::Nobody | KnownRequester::User(_)) => None,
        _ => Some(Exclusion::Unknown),
    }
}

/// Returns whether an approval of the candidate counts, with the reason; `None` if not known yet. `incomplete` is the
/// reason why no approval is counted, if none can be counted.
pub fn explain_approval(
    needed: &Approval,
    candidate: ApprovalCandidate<'_>,
    given: &UserDecision,
    incomplete: Option<&str>,
    at: Timestamp,
) -> Option<(bool, Explanation)> {
    let ApprovalCandidate { config, version, digest, authors, requester, .. } = candidate;
    if let Some(why) = incomplete {
        let message = format!("approvals of version {version} can't be counted: {why}");
        return Some((false, Reason::NotCounted.explained(message)));
    }
    let user = bounded_user(&given.user);
    let Some(exclusion) = find_exclusion(needed, authors, requester, given, at) else {
        let message = format!("{user} approves version {version}, and that counts");
        return Some((true, Reason::Counted.explained(message)));
    };
    let text = format!("version {version}: {user} {}", exclusion.phrase());
    let why = match exclusion {
        Exclusion::NoAnswer => return None,
        Exclusion::Unknown if *authors == Authors::Unread => return None,
        Exclusion::RanOut => {
            let command = decision_command(ApprovalDecision::Approve, config, version, digest);
            let seconds = needed.valid_seconds;
            Reason::RanOut.explained(format!("{text}: approvals count for {seconds} s; approve it again: {command}"))
        }
        Exclusion::NoRight => {
            let right = format!("the right to approve versions of VersionedConfig {config}");
            Reason::NoRight.explained(format!("{text}; this needs {right}"))
        }
        Exclusion::Author | Exclusion::Requester => {
            Reason::IsAuthor.explained(format!("{text}; somebody else must approve it"))
        }
        Exclusion::Unknown => {
            let unknown = match authors {
                Authors::Unknown => UNKNOWN_AUTHOR,
                Authors::SetterUnknown => UNKNOWN_SETTER,
                Authors::Unread | Authors::Known(_) => UNKNOWN_REQUESTER,
            };
            Reason::AuthorUnknown.explained(format!("version {version}: {unknown}"))
        }
    };
    Some((false, why))
}

/// Returns whether an approval of this time was given too long ago to count.
pub(crate) fn has_run_out(needed: &Approval, approval_time: &Time, now: Timestamp) -> bool {
    now.duration_since(approval_time.0) >= SignedDuration::from_secs(needed.valid_seconds.into())
}

impl UserDecision {
    /// Returns whether this approval let the release continue.
    pub fn is_recorded(&self, release: &Release) -> bool {
        let user = bounded_user(&self.user);
        let is_same = |approval: &ReleaseApproval| approval.user == user && approval.approval_time == self.at;
        release.version == self.version && release.approvals.iter().any(is_same)
    }
}
