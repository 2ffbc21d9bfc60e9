//! The approvals of a version: whether it has those that it needs, and what is missing.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{Approval, ApprovalDecision, Explanation, Reason, Release, ReleaseApproval, clipped};
use nudge_protocol::bounded_text::one_line;

use super::RuleOwner;
use super::digest::shortened;
use crate::rollout::{Now, SteadyTime, Withheld};

/// The maximum length of a user's name in the record and in messages, as of the user who asked for a version.
const USER_BYTES: usize = 253;
/// The maximum length of a reason in a message.
const REASON_BYTES: usize = 128;
/// The maximum of users that a message names.
const MAX_NAMED_USERS: usize = 4;
/// The time after which approvals are counted again where somebody has decided: a right that is given or removed is not observed.
const RECHECK_MILLIS: i64 = 15_000;

/// The message where nobody knows who made a version.
const UNKNOWN_AUTHOR: &str =
    "Nudge does not know who created it, so no approval counts: create it again under another name while Nudge runs";
/// The message where nobody knows who made a version of a source, which has one name.
const UNKNOWN_SETTER: &str = "Nudge does not know who created it or set its source, so no approval counts: run kubectl nudge source sync, and \
                              delete the version: the source makes it again";
/// The message where nobody knows who asked for a version.
const UNKNOWN_ASKER: &str = "Nudge does not know who asked for it, so no approval counts: set spec.version to another version, and then to this one";

/// The decision of a user, from a `VersionApproval` that admission has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The version that the decision is about.
    pub version: String,
    /// The digest of its content.
    pub digest: String,
    /// The user.
    pub user: String,
    /// The decision.
    pub decision: ApprovalDecision,
    /// The reason that the user gives.
    pub reason: String,
    /// The time of the decision.
    pub at: Time,
    /// Whether the user may approve the config now; absent where that is not known.
    pub may: Option<bool>,
    /// Whether the user could when that was last known, however long ago. It lets nothing go on.
    pub could: Option<bool>,
}

/// The decisions of users about versions of a config.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Approvals {
    /// The decisions that may count.
    pub given: Vec<Given>,
    /// The reason why there may be more decisions, if so. Then no version goes on: what is not known may be a denial.
    pub incomplete: Option<String>,
    /// The time until which missing answers about rights are taken to be what they were: they are under way, and the version
    /// went on by the ones before. That lets nothing go on. It only keeps the config from saying for a moment that it awaits approval.
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

/// The user who asked for a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker<'a> {
    /// Nobody asked: the version is the first one of a config without `spec.version`.
    Nobody,
    /// The user is not known.
    Unknown,
    /// The user is known.
    User(&'a str),
}

/// A version that is to be approved.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The config of the version.
    pub config: &'a str,
    /// The name of the version.
    pub version: &'a str,
    /// The digest of what the version is.
    pub digest: &'a str,
    /// The users who made the version.
    pub authors: &'a Authors,
    /// The user who asked for the version.
    pub asker: Asker<'a>,
    /// The owner of the rule that asks for approvals.
    pub rule: &'a RuleOwner,
}

/// Returns the approvals that let the version go on, the oldest first; or why it may not.
pub fn approved(
    needed: &Approval,
    candidate: Candidate<'_>,
    approvals: &Approvals,
    now: Now<'_>,
) -> Result<Vec<ReleaseApproval>, Withheld> {
    let about = |given: &&Given| given.version == candidate.version && given.digest == candidate.digest;
    let about: Vec<&Given> = approvals.given.iter().filter(about).collect();
    let at = now.time.0;
    counted(needed, candidate, &about, approvals.incomplete.as_deref(), at).map_err(|message| {
        let again = !approvals.given.is_empty() || approvals.incomplete.is_some();
        let why = Reason::AwaitingApproval.explained(clipped(message));
        let awaited =
            approvals.awaited.filter(|&until| now.steady < until && was_allowed(needed, candidate, &about, at));
        let until = awaited.or_else(|| again.then(|| now.steady + RECHECK_MILLIS));
        Withheld { why, until, ends: None, unsaid: awaited.is_some() }
    })
}

/// Returns whether the version would go on by what was last known of rights.
fn was_allowed(needed: &Approval, candidate: Candidate<'_>, about: &[&Given], at: Timestamp) -> bool {
    let as_before = |given: &&Given| {
        let approves = given.decision == ApprovalDecision::Approve;
        // Another leader has had answers that are not known here.
        Given { may: given.may.or(given.could).or(Some(approves)), ..(*given).clone() }
    };
    let before: Vec<Given> = about.iter().map(as_before).collect();
    counted(needed, candidate, &before.iter().collect::<Vec<_>>(), None, at).is_ok()
}

fn counted(
    needed: &Approval,
    candidate: Candidate<'_>,
    about: &[&Given],
    incomplete: Option<&str>,
    at: Timestamp,
) -> Result<Vec<ReleaseApproval>, String> {
    let Candidate { config, version, digest, authors, asker, rule } = candidate;
    if let Some(why) = incomplete {
        return Err(format!("version {version} waits for its approvals to be counted: {why}"));
    }
    let denial = about.iter().find(|given| given.decision == ApprovalDecision::Deny && given.may != Some(false));
    if let Some(given) = denial {
        let (user, reason) = (shown(&given.user), one_line(&given.reason, REASON_BYTES));
        return Err(format!(
            "{user} denies version {version} ({reason}); it may go on when {user} withdraws that (kubectl nudge deny {config} {version} \
             --undo)"
        ));
    }
    if *authors == Authors::Unread && needed.not_author {
        return Err(format!("version {version} waits for its approvals to be counted: its parts are being read"));
    }
    let mut users: BTreeMap<&str, &Given> = BTreeMap::new();
    // The right may be that of a group that the user has left, and has another one for what was decided later. The same is so of what has run out.
    let rank =
        |given: &Given| (given.has_run_out(needed, at), given.may != Some(true), given.may.is_some(), given.at.0);
    for &given in about.iter().filter(|given| given.decision == ApprovalDecision::Approve) {
        let first = users.entry(&given.user).or_insert(given);
        if rank(given) < rank(first) {
            *first = given;
        }
    }
    let (mut counts, mut others) = (Vec::new(), Vec::new());
    for (user, given) in users {
        match excluded(needed, authors, asker, given, at) {
            None => counts.push(given),
            Some(why) => others.push(format!("{} {}", shown(user), why.phrase())),
        }
    }
    counts.sort_by(|one, other| (one.at.0, &one.user).cmp(&(other.at.0, &other.user)));
    let required = usize::try_from(needed.required).unwrap_or(usize::MAX).max(1);
    if counts.len() >= required {
        let record = |given: &Given| ReleaseApproval { user: shown(&given.user), approval_time: given.at.clone() };
        return Ok(counts.into_iter().take(Release::MAX_APPROVALS).map(record).collect());
    }
    let way_out = match (authors, asker) {
        (Authors::Unknown, _) if needed.not_author => UNKNOWN_AUTHOR.to_owned(),
        (Authors::SetterUnknown, _) if needed.not_author => UNKNOWN_SETTER.to_owned(),
        (_, Asker::Unknown) if needed.not_author => UNKNOWN_ASKER.to_owned(),
        _ => {
            let command = deciding_command(ApprovalDecision::Approve, config, version, digest);
            format!(
                "{command}, by a user with the verb approve on the config who has read it (kubectl nudge diff {config} current {version})"
            )
        }
    };
    let by = counts.iter().map(|given| format!("{} approves it", shown(&given.user)));
    let mut said: Vec<String> = by.chain(others).collect();
    if said.len() > MAX_NAMED_USERS {
        let more = said.len() - MAX_NAMED_USERS;
        said.truncate(MAX_NAMED_USERS);
        said.push(format!("and {more} more"));
    }
    let said = if said.is_empty() { String::new() } else { format!("; so far: {}", said.join("; ")) };
    let plural = if required == 1 { "approval" } else { "approvals" };
    let needs = match rule {
        RuleOwner::Config => "it needs".to_owned(),
        RuleOwner::Policy(_) => format!("{rule} asks for"),
    };
    // A long message is cut at its end, which the command must survive.
    Err(format!("version {version} has {} of {required} {plural} that {needs}; {way_out}{said}", counts.len()))
}

/// Returns the command by which a user decides about the version with this content.
pub fn deciding_command(decision: ApprovalDecision, config: &str, version: &str, digest: &str) -> String {
    match decision {
        ApprovalDecision::Approve => {
            format!("kubectl nudge approve {config} {version} --digest={} --reason=TEXT", shortened(digest))
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
    /// The user has asked for the version.
    Asker,
    /// Nudge does not know who created the version, or who asked for it.
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
            Self::Asker => "has asked for it",
            Self::Unknown => "approves it",
        }
    }
}

/// Returns why an approval does not count.
fn excluded(needed: &Approval, authors: &Authors, asker: Asker<'_>, given: &Given, at: Timestamp) -> Option<Exclusion> {
    let user = given.user.as_str();
    if given.has_run_out(needed, at) {
        return Some(Exclusion::RanOut);
    }
    match (given.may, authors, asker) {
        (Some(false), ..) => return Some(Exclusion::NoRight),
        (None, ..) => return Some(Exclusion::NoAnswer),
        _ if !needed.not_author => return None,
        _ => {}
    }
    match (authors, asker) {
        (Authors::Known(authors), _) if authors.contains(user) => Some(Exclusion::Author),
        // Who asked is known in one line of bounded length.
        (_, Asker::User(asker)) if asker == one_line(user, USER_BYTES) => Some(Exclusion::Asker),
        (Authors::Known(_), Asker::Nobody | Asker::User(_)) => None,
        _ => Some(Exclusion::Unknown),
    }
}

/// Returns whether an approval of the candidate counts, and why, or why not; `None` where that is not known yet. `incomplete` is why no approval is
/// counted.
pub fn approval_counts(
    needed: &Approval,
    candidate: Candidate<'_>,
    given: &Given,
    incomplete: Option<&str>,
    at: Timestamp,
) -> Option<(bool, Explanation)> {
    let Candidate { config, version, digest, authors, asker, .. } = candidate;
    if let Some(why) = incomplete {
        let message = format!("approvals of version {version} can't be counted: {why}");
        return Some((false, Reason::NotCounted.explained(message)));
    }
    let user = shown(&given.user);
    let Some(exclusion) = excluded(needed, authors, asker, given, at) else {
        let message = format!("{user} approves version {version}, and that counts");
        return Some((true, Reason::Counted.explained(message)));
    };
    let text = format!("version {version}: {user} {}", exclusion.phrase());
    let why = match exclusion {
        Exclusion::NoAnswer => return None,
        Exclusion::Unknown if *authors == Authors::Unread => return None,
        Exclusion::RanOut => {
            let command = deciding_command(ApprovalDecision::Approve, config, version, digest);
            let seconds = needed.valid_seconds;
            Reason::RanOut.explained(format!("{text}: approvals count for {seconds} s; approve it again: {command}"))
        }
        Exclusion::NoRight => {
            let right = format!("the right to approve versions of VersionedConfig {config}");
            Reason::NoRight.explained(format!("{text}; this needs {right}"))
        }
        Exclusion::Author | Exclusion::Asker => {
            Reason::IsAuthor.explained(format!("{text}; somebody else must approve it"))
        }
        Exclusion::Unknown => {
            let unknown = match authors {
                Authors::Unknown => UNKNOWN_AUTHOR,
                Authors::SetterUnknown => UNKNOWN_SETTER,
                Authors::Unread | Authors::Known(_) => UNKNOWN_ASKER,
            };
            Reason::AuthorUnknown.explained(format!("version {version}: {unknown}"))
        }
    };
    Some((false, why))
}

impl Given {
    /// Returns whether the approval was given too long ago to count.
    fn has_run_out(&self, needed: &Approval, at: Timestamp) -> bool {
        at.duration_since(self.at.0) >= SignedDuration::from_secs(needed.valid_seconds.into())
    }

    /// Returns whether the release went on by this approval.
    pub fn is_recorded(&self, release: &Release) -> bool {
        let user = shown(&self.user);
        let same = |one: &ReleaseApproval| one.user == user && one.approval_time == self.at;
        release.version == self.version && release.approvals.iter().any(same)
    }
}

fn shown(user: &str) -> String {
    one_line(user, USER_BYTES)
}
