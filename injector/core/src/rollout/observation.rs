//! The facts that a transition of the rollout is decided by, beside its state and the evidence.

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{BackgroundStatus, Explanation, Reason, ReleaseApproval, RolloutAnalysisStatus, RolloutSpec};

use super::clock::{Millis, Now, SteadyTime, seconds};
use super::withheld::Withheld;
use super::{Effects, Subject};
use crate::hub_health::HubAway;
use crate::requester::Requesters;

/// The maximum time that a pod is given for the line of the hub.
const MAX_LINE_WAIT: Millis = 60_000;
/// The minimum of other pods on a node that must be harmed too until the node is the cause.
const MIN_FALLEN_NEIGHBOURS: usize = 2;

/// The state of the workloads that take the version by a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restarts {
    /// All workloads run the version, or there are none.
    Done,
    /// A workload is being restarted: the message.
    Busy(String),
    /// A workload did not come up: the message.
    Failed(String),
    /// Processes that take a version only by a restart were not restarted, and somebody must act: the message.
    Held(String),
}

/// The last attempt to bring a version to all that is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishAttempt {
    /// The version.
    pub version: String,
    /// The failure of a call. What Nudge does not write by a rule, or may not write, is not a failure.
    pub failure: Option<PublishFailure>,
}

/// The failure of an attempt to publish a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishFailure {
    /// When the attempt failed.
    pub at: SteadyTime,
    /// Why it failed.
    pub why: Explanation,
}

impl PublishAttempt {
    /// An attempt without a failure.
    pub fn settled(version: &str) -> Self {
        Self { version: version.to_owned(), failure: None }
    }
}

/// When pods of a node that have no version on trial last became unready or restarted, if they did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Neighbours {
    /// The times of each pod of the config's namespace.
    pub own: Vec<Option<SteadyTime>>,
    /// The times of the pods of each other namespace.
    pub others: Vec<Vec<Option<SteadyTime>>>,
}

impl Neighbours {
    /// Returns whether as many other pods fell at about this time as of the `assigned` pods with the target there, of
    /// which `harmed` were harmed. Another namespace counts as one pod: what one tenant does to all of its pods excuses
    /// nothing in the namespace of another.
    pub(super) fn is_node_at_fault(&self, at: SteadyTime, within: Millis, harmed: u32, assigned: u32) -> bool {
        let fell =
            |times: &[Option<SteadyTime>]| times.iter().flatten().filter(|&&time| (time - at).abs() <= within).count();
        let as_many = |fell: usize, total: usize| {
            let fell = u64::try_from(fell).unwrap_or(0);
            let total = u64::try_from(total).unwrap_or(u64::MAX);
            fell > 0 && fell.saturating_mul(assigned.into()) >= total.saturating_mul(harmed.into())
        };
        let others = self.others.iter().filter(|times| as_many(fell(times), times.len())).count();
        let sum = fell(&self.own) + others;
        sum >= MIN_FALLEN_NEIGHBOURS && as_many(sum, self.own.len() + self.others.len())
    }
}

/// The facts about a config at one time.
#[derive(Clone, Debug)]
pub struct Observation<'a> {
    /// The time of the observation.
    pub now: Now<'a>,
    /// How pods are moved.
    pub spec: &'a RolloutSpec,
    /// The generation of the spec.
    pub generation: i64,
    /// The version that the spec names, even if pods can't be moved to it.
    pub spec_version: Option<&'a str>,
    /// The digest of the content of the requested version.
    pub digest: &'a str,
    /// The version that the config is to have; pods can be moved to it.
    pub requested: &'a str,
    /// Why the requested version is to be assigned to all pods at once, if it is.
    pub override_reason: Option<&'a str>,
    /// The users who asked for the versions, where they are known.
    pub requesters: &'a Requesters,
    /// The pods that steps move.
    pub pods: &'a [Subject],
    /// The times at which other pods fell, by the nodes of pods that are not ready.
    pub neighbours: &'a HashMap<String, Neighbours>,
    /// The harm to pods of the config without a new version.
    pub background: Option<&'a BackgroundStatus>,
    /// Another config that shares pods with this one and is being moved.
    pub waiting_for: Option<&'a str>,
    /// What keeps the requested version from going on although nothing is wrong with it.
    pub withheld: Option<&'a Withheld>,
    /// The approvals of the requested version, where it needed them and has them.
    pub approvals: &'a [ReleaseApproval],
    /// The measurements of the version.
    pub measured: Option<&'a RolloutAnalysisStatus>,
    /// Whether any object is kept at the current version.
    pub publishes: bool,
    /// The last attempt to publish a version. Without such an object it was noted all the same.
    pub published: Option<&'a PublishAttempt>,
    /// Since when workloads may have been restarted with the current version, if that is known.
    pub current_since: Option<&'a Time>,
    /// The state of the workloads that are restarted.
    pub restart: &'a Restarts,
    /// The time for which reports of pods wait in the line of a hub replica.
    pub report_wait: Millis,
    /// Why the reports of pods reach no hub, if that is so.
    pub hub_away: Option<HubAway>,
}

impl Observation<'_> {
    /// Returns who asked for the version, as a phrase that continues a message.
    pub(super) fn requester_phrase(&self) -> String {
        let user = self.requesters.current.as_ref().map(|requester| &requester.user);
        user.map_or_else(String::new, |user| format!(", requested by {user}"))
    }

    /// Returns what holds the requested version, unless it is to go out at once.
    pub(super) fn withheld_effects(&self) -> Option<Effects> {
        self.withheld.filter(|_| self.override_reason.is_none()).map(Withheld::effects)
    }

    /// Returns what holds the version while the hub is away, however it is assigned. The deadline does not end that.
    /// Without pods to move nobody needs the hub, and reports in its line do not concern a version of which no pod owes
    /// a report.
    pub(super) fn hub_away_effects(&self, owed: bool) -> Option<Effects> {
        let matters = |away: &HubAway| !self.pods.is_empty() && (owed || *away == HubAway::NotRenewing);
        let Explanation { reason, message } = self.hub_away.filter(matters)?.explanation();
        Some(Effects::hold(reason, message))
    }

    /// Returns the wait until the version is published: workloads are looked for only then, also where there is nothing
    /// to publish.
    pub(super) fn publish_wait(&self, version: &str) -> Option<Effects> {
        if let Some(PublishFailure { why, .. }) = self.publish_failure(version) {
            let message = format!("version {version} is not published yet: {}", why.message);
            // Another attempt can't help where the API server refuses the object.
            return Some(match why.reason {
                Reason::Refused => Effects::hold(Reason::NotPublished, message),
                _ => Effects::wait(Reason::NotPublished, message, None),
            });
        }
        let (reason, message) = if self.publishes {
            (Reason::Publishing, format!("version {version} is being published"))
        } else {
            (Reason::Restarting, "Nudge looks for workloads to restart".to_owned())
        };
        let is_settled = self.published.is_some_and(|attempt| attempt.version == version);
        (!is_settled).then(|| Effects::wait(reason, message, None))
    }

    /// Returns the failure of the last attempt to publish the version.
    pub(super) fn publish_failure(&self, version: &str) -> Option<&PublishFailure> {
        self.published.filter(|attempt| attempt.version == version)?.failure.as_ref()
    }

    /// Returns the time that a pod has to acknowledge. The time in which its report may wait in the hub's own line is
    /// not silence of the pod.
    pub(super) fn ack_timeout(&self) -> Millis {
        seconds(self.spec.ack_timeout_seconds) + self.report_wait.clamp(0, MAX_LINE_WAIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether all of a node's pods with the target are excused that fell at 100 s.
    fn excused(own: &[Option<SteadyTime>], others: &[&[Option<SteadyTime>]]) -> bool {
        let others = others.iter().map(|times| times.to_vec()).collect();
        Neighbours { own: own.to_vec(), others }.is_node_at_fault(SteadyTime(100_000), 13_000, 2, 2)
    }

    #[test]
    fn only_what_fell_at_about_the_same_time_counts() {
        for (fell, counts) in [(87_000, true), (113_000, true), (86_999, false), (113_001, false), (580_000, false)] {
            assert_eq!(excused(&[Some(SteadyTime(fell)), Some(SteadyTime(100_000))], &[]), counts, "{fell}");
        }
    }

    #[test]
    fn another_namespace_counts_as_one_pod() {
        let fell = Some(SteadyTime(100_000));
        assert!(!excused(&[], &[&[fell; 10]]), "one namespace excuses nothing alone");
        assert!(!excused(&[None], &[&[fell; 10], &[fell; 10]]), "a pod of the same namespace stayed well");
        assert!(!excused(&[], &[&[fell; 2], &[fell, None]]), "half of a namespace is not as many");
        assert!(!excused(&[fell], &[]) && !excused(&[], &[]));
        assert!(excused(&[], &[&[fell], &[fell]]) && excused(&[fell], &[&[fell]]) && excused(&[fell, fell], &[]));
    }

    #[test]
    fn as_many_of_the_others_must_fall() {
        let times = |fell: usize| (0..4).map(|at| (at < fell).then_some(SteadyTime(100_000))).collect();
        let own = |fell: usize| Neighbours { own: times(fell), others: Vec::new() };
        assert!(
            own(2).is_node_at_fault(SteadyTime(100_000), 13_000, 1, 2)
                && !own(2).is_node_at_fault(SteadyTime(100_000), 13_000, 2, 3)
        );
    }
}
