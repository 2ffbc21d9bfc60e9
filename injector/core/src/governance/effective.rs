//! The rules that hold for a config: its own, and those of the policies of its namespace. The stricter one counts.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{Approval, Explanation, Reason, RolloutPolicySpec, RolloutSpec, Window};

use super::policies::Policies;
use super::windows::{Windows, next_common_opening};

/// The owner of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleOwner {
    /// The config itself.
    Config,
    /// The policy of this name.
    Policy(String),
}

/// The rules of a config and of the policies of its namespace together.
#[derive(Clone, Debug, PartialEq)]
pub struct Effective<'a> {
    /// The approval that is needed: of as many users as the strictest rule says, of nobody who made the version if one rule says so, and for the
    /// shortest time.
    pub approval: Option<Approval>,
    /// The owner of that rule: where several rules are as strict, the config, or else the first policy.
    pub approval_of: RuleOwner,
    /// The windows, by owner. One window of each owner must be open.
    pub windows: Vec<(RuleOwner, &'a [Window])>,
    /// The holds: their owners, reasons and ends. Each of them is enough, until its end.
    pub holds: Vec<(RuleOwner, &'a str, Option<Timestamp>)>,
    /// The reason why there may be more rules.
    pub unknown: Option<&'a str>,
}

/// The verdict of the rules at a moment at which no version goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The reason why no version goes on.
    pub why: Explanation,
    /// When the wait ends, if it ends by itself.
    pub until: Option<Timestamp>,
}

impl fmt::Display for RuleOwner {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config => out.write_str("spec.rollout"),
            Self::Policy(name) => write!(out, "RolloutPolicy {name}"),
        }
    }
}

impl<'a> Effective<'a> {
    /// Returns the rules of a config with this spec, under these policies.
    pub fn of(spec: &'a RolloutSpec, policies: &'a Policies) -> Self {
        let mut all = Self {
            approval: None,
            approval_of: RuleOwner::Config,
            windows: Vec::new(),
            holds: Vec::new(),
            unknown: None,
        };
        all.add(&RuleOwner::Config, spec.approval.as_ref(), &spec.windows);
        all.hold(RuleOwner::Config, spec.hold.as_ref().map(|hold| (&*hold.reason, hold.until_time.as_ref())));
        match policies {
            Policies::Unknown(why) => all.unknown = Some(why),
            Policies::Known(policies) => {
                for policy in policies {
                    let RolloutPolicySpec { hold, windows, approval, .. } = &policy.spec;
                    let owner = RuleOwner::Policy(policy.metadata.name.clone().unwrap_or_default());
                    all.add(&owner, approval.as_ref(), windows);
                    all.hold(owner, hold.as_ref().map(|hold| (&*hold.reason, hold.until_time.as_ref())));
                }
            }
        }
        all
    }

    fn add(&mut self, owner: &RuleOwner, approval: Option<&Approval>, windows: &'a [Window]) {
        let is_stricter = |one: &Approval| {
            let known = self.approval.as_ref();
            known.is_none_or(|known| {
                one.required > known.required
                    || (one.not_author && !known.not_author)
                    || one.valid_seconds < known.valid_seconds
            })
        };
        if approval.is_some_and(is_stricter) {
            self.approval_of = owner.clone();
        }
        self.approval = match (self.approval.take(), approval) {
            (Some(one), Some(other)) => Some(Approval {
                required: one.required.max(other.required),
                not_author: one.not_author || other.not_author,
                valid_seconds: one.valid_seconds.min(other.valid_seconds),
            }),
            (one, other) => one.or_else(|| other.cloned()),
        };
        if !windows.is_empty() {
            self.windows.push((owner.clone(), windows));
        }
    }

    fn hold(&mut self, owner: RuleOwner, hold: Option<(&'a str, Option<&Time>)>) {
        self.holds.extend(hold.map(|(reason, until)| (owner, reason, until.map(|until| until.0))));
    }

    /// Returns why no version goes on at this time, if none does. Approval is not among the reasons. A reason that needs somebody to act comes first.
    pub fn blocked(&self, at: Timestamp) -> Option<Blocked> {
        if let Some(why) = self.unknown {
            let why = Reason::PoliciesUnknown.explained(format!("no version goes on, because {why}"));
            return Some(Blocked { why, until: None });
        }
        self.on_hold(at).or_else(|| self.outside_window(at))
    }

    /// Returns the hold that ends last.
    fn on_hold(&self, at: Timestamp) -> Option<Blocked> {
        let holds = self.holds.iter().filter(|(.., end)| end.is_none_or(|end| at < end));
        let (owner, reason, until) = holds.max_by_key(|(.., end)| end.unwrap_or(Timestamp::MAX))?;
        let by = match owner {
            RuleOwner::Config => "the config is on hold".to_owned(),
            RuleOwner::Policy(_) => format!("{owner} holds the configs of this namespace"),
        };
        let ends = match (until, owner) {
            (Some(until), _) => format!("until {}", whole_seconds(*until)),
            (None, RuleOwner::Config) => "until spec.rollout.hold is removed (kubectl nudge unhold)".to_owned(),
            (None, RuleOwner::Policy(_)) => "until the hold is removed from the policy".to_owned(),
        };
        Some(Blocked { why: Reason::OnHold.explained(format!("{by} {ends}: {}", reason.trim())), until: *until })
    }

    fn outside_window(&self, at: Timestamp) -> Option<Blocked> {
        if self.windows.is_empty() {
            return None;
        }
        let closed = |message: String, until| Some(Blocked { why: Reason::OutsideWindow.explained(message), until });
        let mut all = Vec::new();
        for (owner, windows) in &self.windows {
            match Windows::parse(windows) {
                Ok(windows) => all.push((owner, windows)),
                Err(error) => {
                    return closed(format!("a window of {owner} can't be used, so no version goes on: {error}"), None);
                }
            }
        }
        let (owner, _) = all.iter().find(|(_, windows)| !windows.is_open(at))?;
        let several = if all.len() > 1 { "all windows are open together" } else { "the next window opens" };
        let lists: Vec<Windows> = all.iter().map(|(_, windows)| windows.clone()).collect();
        if let Some(opening) = next_common_opening(&lists, at) {
            let message = format!("no version goes on outside of the windows of {owner}; {several} at {opening}");
            return closed(message, Some(opening.at));
        }
        let owners: Vec<String> = all.iter().map(|(owner, _)| owner.to_string()).collect();
        let owners = owners.join(" and ");
        closed(format!("the windows of {owners} are not open together within two months; change them"), None)
    }
}

/// Returns the time in whole seconds, and never earlier.
pub(super) fn whole_seconds(time: Timestamp) -> Timestamp {
    let whole = Timestamp::from_second(time.as_second()).unwrap_or(time);
    if whole < time { whole.checked_add(SignedDuration::from_secs(1)).unwrap_or(time) } else { whole }
}
