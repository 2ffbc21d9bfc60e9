//! The rules that hold for a config: its own, and those of the policies of its namespace. The stricter rule counts.

use std::fmt;
use std::iter::once_with;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{Approval, Explanation, Reason, RolloutPolicySpec, RolloutSpec, Window};

use super::policies::Policies;
use super::windows::{Windows, next_common_opening};

/// Who has set a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleOwner {
    /// The config itself.
    Config,
    /// The policy of this name.
    Policy(String),
}

/// The rules of a config and of the policies of its namespace together.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectiveRules<'a> {
    /// The required approval. It needs the largest number of users that any rule requires, excludes the authors if any
    /// rule does, and is valid for the shortest time of all rules.
    pub approval: Option<Approval>,
    /// The owner of the strictest approval rule: if several rules are equally strict, the config, or else the first
    /// policy.
    pub approval_owner: RuleOwner,
    /// The windows of each owner: one window of each must be open.
    pub windows: Vec<(RuleOwner, &'a [Window])>,
    /// The holds. Each hold keeps all versions from continuing until it ends.
    pub holds: Vec<EffectiveHold<'a>>,
    /// The reason why there may be more rules.
    pub unknown: Option<&'a str>,
}

/// A hold, and its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveHold<'a> {
    /// The config or the policy that has the hold.
    pub owner: RuleOwner,
    /// The reason that a user gave for the hold.
    pub reason: &'a str,
    /// The time of the end; `None` if there is no end.
    pub until: Option<Timestamp>,
}

/// The reason why the rules let no version continue at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The reason why no version continues.
    pub why: Explanation,
    /// The time when the wait ends, if it ends by itself.
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

impl<'a> EffectiveRules<'a> {
    /// Returns the rules of a config with this spec, under these policies.
    pub fn of(spec: &'a RolloutSpec, policies: &'a Policies) -> Self {
        let mut rules = Self {
            approval: None,
            approval_owner: RuleOwner::Config,
            windows: Vec::new(),
            holds: Vec::new(),
            unknown: None,
        };
        rules.add_approval_and_windows(&RuleOwner::Config, spec.approval.as_ref(), &spec.windows);
        rules.add_hold(RuleOwner::Config, spec.hold.as_ref().map(|hold| (&*hold.reason, hold.until_time.as_ref())));
        match policies {
            Policies::Unknown(cause) => rules.unknown = Some(cause),
            Policies::Known(policies) => {
                for policy in policies {
                    let RolloutPolicySpec { hold, windows, approval, .. } = &policy.spec;
                    let owner = RuleOwner::Policy(policy.metadata.name.clone().unwrap_or_default());
                    rules.add_approval_and_windows(&owner, approval.as_ref(), windows);
                    rules.add_hold(owner, hold.as_ref().map(|hold| (&*hold.reason, hold.until_time.as_ref())));
                }
            }
        }
        rules
    }

    fn add_approval_and_windows(&mut self, owner: &RuleOwner, approval: Option<&Approval>, windows: &'a [Window]) {
        let is_stricter = |approval: &Approval| {
            self.approval.as_ref().is_none_or(|other| {
                approval.required > other.required
                    || (approval.not_author && !other.not_author)
                    || approval.valid_seconds < other.valid_seconds
            })
        };
        if approval.is_some_and(is_stricter) {
            self.approval_owner = owner.clone();
        }
        self.approval = match (self.approval.take(), approval) {
            (Some(a), Some(b)) => Some(Approval {
                required: a.required.max(b.required),
                not_author: a.not_author || b.not_author,
                valid_seconds: a.valid_seconds.min(b.valid_seconds),
            }),
            (a, b) => a.or_else(|| b.cloned()),
        };
        if !windows.is_empty() {
            self.windows.push((owner.clone(), windows));
        }
    }

    fn add_hold(&mut self, owner: RuleOwner, hold: Option<(&'a str, Option<&Time>)>) {
        let hold = hold.map(|(reason, until)| EffectiveHold { owner, reason, until: until.map(|until| until.0) });
        self.holds.extend(hold);
    }

    /// Returns why no version continues at this time. Missing approvals are not among the reasons. A reason that
    /// requires somebody to act comes first.
    pub fn block(&self, now: Timestamp) -> Option<Block> {
        self.blocks(now).next()
    }

    /// Returns all reasons why no version continues at this time, but missing approvals.
    pub fn blocks(&self, now: Timestamp) -> impl Iterator<Item = Block> {
        let unknown = self.unknown.map(|cause| Block {
            why: Reason::PoliciesUnknown.explained(format!("no version continues, because {cause}")),
            until: None,
        });
        let on_hold = once_with(move || self.on_hold(now)).flatten();
        let outside_window = once_with(move || self.outside_window(now)).flatten();
        unknown.into_iter().chain(on_hold).chain(outside_window)
    }

    /// Returns the hold that ends last.
    fn on_hold(&self, now: Timestamp) -> Option<Block> {
        let holds = self.holds.iter().filter(|hold| hold.until.is_none_or(|until| now < until));
        let EffectiveHold { owner, reason, until } = holds.max_by_key(|hold| hold.until.unwrap_or(Timestamp::MAX))?;
        let by = match owner {
            RuleOwner::Config => "the config is on hold".to_owned(),
            RuleOwner::Policy(_) => format!("{owner} holds the configs of this namespace"),
        };
        let end_phrase = match (until, owner) {
            (Some(until), _) => format!("until {}", whole_seconds(*until)),
            (None, RuleOwner::Config) => "until spec.rollout.hold is removed (kubectl nudge unhold)".to_owned(),
            (None, RuleOwner::Policy(_)) => "until the hold is removed from the policy".to_owned(),
        };
        Some(Block { why: Reason::OnHold.explained(format!("{by} {end_phrase}: {}", reason.trim())), until: *until })
    }

    fn outside_window(&self, now: Timestamp) -> Option<Block> {
        if self.windows.is_empty() {
            return None;
        }
        let closed = |message: String, until| Some(Block { why: Reason::OutsideWindow.explained(message), until });
        let mut parsed = Vec::new();
        for (owner, windows) in &self.windows {
            match Windows::parse(windows) {
                Ok(windows) => parsed.push((owner, windows)),
                Err(error) => {
                    return closed(
                        format!("a window of {owner} can't be used, so no version continues: {error}"),
                        None,
                    );
                }
            }
        }
        let (owner, _) = parsed.iter().find(|(_, windows)| !windows.is_open(now))?;
        let several = if parsed.len() > 1 { "all windows are open together" } else { "the next window opens" };
        let lists: Vec<Windows> = parsed.iter().map(|(_, windows)| windows.clone()).collect();
        if let Some(opening) = next_common_opening(&lists, now) {
            let message = format!("no version continues outside of the windows of {owner}; {several} at {opening}");
            return closed(message, Some(opening.at));
        }
        let owners: Vec<String> = parsed.iter().map(|(owner, _)| owner.to_string()).collect();
        let owners = owners.join(" and ");
        closed(format!("the windows of {owners} are not open together within two months; change them"), None)
    }
}

/// Rounds the time up to whole seconds.
pub(super) fn whole_seconds(time: Timestamp) -> Timestamp {
    let whole_second = Timestamp::from_second(time.as_second()).unwrap_or(time);
    if whole_second < time {
        whole_second.checked_add(SignedDuration::from_secs(1)).unwrap_or(time)
    } else {
        whole_second
    }
}
