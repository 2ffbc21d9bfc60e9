//! The rules that hold for a config: its own, and those of the policies of its namespace. The stricter one counts.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use nudge_api::{Approval, Explanation, Freeze, Reason, RolloutPolicySpec, RolloutSpec, Window};

use super::policies::Policies;
use super::windows::{Windows, next_common_opening};

/// Whose rule it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleOwner {
    /// The config's own.
    Config,
    /// That of the policy of this name.
    Policy(String),
}

/// The rules together.
#[derive(Clone, Debug, PartialEq)]
pub struct Effective<'a> {
    /// Who must agree: as many as the strictest rule says, and nobody who made the version if one says so.
    pub approval: Option<Approval>,
    /// Whose rule that is: where several are as strict, the config's own, or else the first.
    pub approval_of: RuleOwner,
    /// Windows, by whose they are. Of each of these one must be open.
    pub windows: Vec<(RuleOwner, &'a [Window])>,
    /// Freezes. Each of them is enough, until it ends.
    pub freezes: Vec<(RuleOwner, &'a Freeze)>,
    /// Why there may be more rules.
    pub unknown: Option<&'a str>,
}

/// What the rules say at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Why no version goes on.
    pub why: Explanation,
    /// When that ends, if it ends by itself.
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
    /// The rules of a config with this spec, under these policies.
    pub fn of(spec: &'a RolloutSpec, policies: &'a Policies) -> Self {
        let mut all = Self {
            approval: None,
            approval_of: RuleOwner::Config,
            windows: Vec::new(),
            freezes: Vec::new(),
            unknown: None,
        };
        all.add(&RuleOwner::Config, spec.approval.as_ref(), &spec.windows, spec.freeze.as_ref());
        match policies {
            Policies::Unknown(why) => all.unknown = Some(why),
            Policies::Known(policies) => {
                for policy in policies {
                    let RolloutPolicySpec { freeze, windows, require_approval, .. } = &policy.spec;
                    let owner = RuleOwner::Policy(policy.metadata.name.clone().unwrap_or_default());
                    all.add(&owner, require_approval.as_ref(), windows, freeze.as_ref());
                }
            }
        }
        all
    }

    fn add(
        &mut self,
        owner: &RuleOwner,
        approval: Option<&Approval>,
        windows: &'a [Window],
        freeze: Option<&'a Freeze>,
    ) {
        let is_stricter = |one: &Approval| {
            let known = self.approval.as_ref();
            known.is_none_or(|known| one.required > known.required || (one.not_author && !known.not_author))
        };
        if approval.is_some_and(is_stricter) {
            self.approval_of = owner.clone();
        }
        self.approval = match (self.approval.take(), approval) {
            (Some(one), Some(other)) => Some(Approval {
                required: one.required.max(other.required),
                not_author: one.not_author || other.not_author,
            }),
            (one, other) => one.or_else(|| other.cloned()),
        };
        if !windows.is_empty() {
            self.windows.push((owner.clone(), windows));
        }
        self.freezes.extend(freeze.map(|freeze| (owner.clone(), freeze)));
    }

    /// Why no version goes on at this time, if none does. Approval is not among it. What needs somebody to act comes first.
    pub fn closed(&self, at: Timestamp) -> Option<Closed> {
        if let Some(why) = self.unknown {
            let why = Reason::PoliciesUnknown.explained(format!("no version goes on, because {why}"));
            return Some(Closed { why, until: None });
        }
        self.frozen(at).or_else(|| self.outside_window(at))
    }

    /// The freeze that ends last.
    fn frozen(&self, at: Timestamp) -> Option<Closed> {
        let end = |freeze: &Freeze| freeze.until.as_ref().map(|until| until.0);
        let frozen = self.freezes.iter().filter(|(_, freeze)| end(freeze).is_none_or(|end| at < end));
        let (owner, freeze) = frozen.max_by_key(|(_, freeze)| end(freeze).unwrap_or(Timestamp::MAX))?;
        let (by, until) = match owner {
            RuleOwner::Config => ("the config is frozen".to_owned(), end(freeze)),
            RuleOwner::Policy(_) => (format!("{owner} freezes the configs of this namespace"), end(freeze)),
        };
        let ends = match (until, owner) {
            (Some(until), _) => format!("until {}", whole_seconds(until)),
            (None, RuleOwner::Config) => "until spec.rollout.freeze is removed (kubectl nudge unfreeze)".to_owned(),
            (None, RuleOwner::Policy(_)) => "until the freeze is removed from the policy".to_owned(),
        };
        Some(Closed { why: Reason::Frozen.explained(format!("{by} {ends}: {}", freeze.reason.trim())), until })
    }

    fn outside_window(&self, at: Timestamp) -> Option<Closed> {
        if self.windows.is_empty() {
            return None;
        }
        let closed = |message: String, until| Some(Closed { why: Reason::OutsideWindow.explained(message), until });
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

/// Whole seconds, and never earlier.
pub(super) fn whole_seconds(time: Timestamp) -> Timestamp {
    let whole = Timestamp::from_second(time.as_second()).unwrap_or(time);
    if whole < time { whole.checked_add(SignedDuration::from_secs(1)).unwrap_or(time) } else { whole }
}
