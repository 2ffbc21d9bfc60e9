//! The facts that decide a transition of the rollout, in addition to its state and the evidence.

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{BackgroundStatus, Explanation, Reason, ReleaseApproval, RolloutAnalysisStatus, RolloutSpec};

use super::clock::{Millis, Now, SteadyTime, seconds};
use super::gate::ClosedGate;
use super::{Effects, Subject};
use crate::hub_health::HubAway;
use crate::requester::Requesters;

/// The maximum time that is added to a pod's deadline for the queue of the hub.
const MAX_LINE_WAIT: Millis = 60_000;
/// The minimum number of other harmed pods on a node that makes the node the cause.
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
    Blocked(String),
}

/// The last attempt to write a version into all published objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishAttempt {
    /// The version that was to be written.
    pub version: String,
    /// The failure of a call. An object that Nudge may not write, or does not write because of a rule, is not a
    /// failure.
    pub failure: Option<PublishFailure>,
}

/// The failure of an attempt to publish a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishFailure {
    /// The time when the attempt failed.
    pub at: SteadyTime,
    /// The reason why it failed.
    pub why: Explanation,
}

impl PublishAttempt {
    /// Returns an attempt without a failure.
    pub fn settled(version: &str) -> Self {
        Self { version: version.to_owned(), failure: None }
    }
}

/// The times when pods of a node last fell: became unready or restarted. Only pods without a version on trial count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Neighbours {
    /// The times of each pod of the config's namespace.
    pub own: Vec<Option<SteadyTime>>,
    /// The times of the pods of each other namespace.
    pub others: Vec<Vec<Option<SteadyTime>>>,
}

impl Neighbours {
    /// Returns whether at about this time the node's other pods fell in at least the same proportion as its pods with
    /// the target: `harmed` of `assigned`. Another namespace counts as one pod, so that a tenant who harms all of its
    /// own pods excuses nothing in the namespace of another.
    pub(super) fn is_node_at_fault(&self, harmed_at: SteadyTime, period: Millis, harmed: u32, assigned: u32) -> bool {
        let fell = |times: &[Option<SteadyTime>]| {
            times.iter().flatten().filter(|&&time| (time - harmed_at).abs() <= period).count()
        };
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
    /// The rules for moving pods.
    pub spec: &'a RolloutSpec,
    /// The generation of the spec.
    pub generation: i64,
    /// The version that the spec names, even if pods can't be moved to it.
    pub spec_version: Option<&'a str>,
    /// The digest of the content of the requested version.
    pub digest: &'a str,
    /// The version that the config should have; pods can be moved to it.
    pub requested: &'a str,
    /// Whether the requested version is the text of the config's objects.
    pub follows_text: bool,
    /// The field managers that wrote this text, as they name themselves.
    pub text_managers: &'a [String],
    /// The reason of an override that assigns the requested version to all pods at once.
    pub override_reason: Option<&'a str>,
    /// The users who requested the versions, if known.
    pub requesters: &'a Requesters,
    /// The pods that steps move.
    pub pods: &'a [Subject],
    /// The times when other pods fell, by the nodes of pods that are not ready.
    pub neighbours: &'a HashMap<String, Neighbours>,
    /// The harm to pods of the config without a new version.
    pub background: Option<&'a BackgroundStatus>,
    /// The other config that shares pods with this config and is moved first.
    pub waiting_for: Option<&'a str>,
    /// The reason that keeps the requested version from continuing although nothing is wrong with it.
    pub closed_gate: Option<&'a ClosedGate>,
    /// The approvals of the requested version, if it needed approvals and has them.
    pub approvals: &'a [ReleaseApproval],
    /// The measurements of the version.
    pub measured: Option<&'a RolloutAnalysisStatus>,
    /// Whether the config has objects, which are kept at the current version.
    pub has_objects: bool,
    /// The last attempt to publish a version. It is noted even if there is no object to publish.
    pub publish_attempt: Option<&'a PublishAttempt>,
    /// The earliest time when workloads may have been restarted with the current version.
    pub current_since: Option<&'a Time>,
    /// The state of the workloads that are restarted.
    pub restart: &'a Restarts,
    /// The time that reports of pods wait in the queue of a hub replica.
    pub report_wait: Millis,
    /// The reason why the reports of pods reach no hub.
    pub hub_away: Option<HubAway>,
}

impl Observation<'_> {
    /// Returns who requested the version, as a phrase that continues a message.
    pub(super) fn requester_phrase(&self) -> String {
        let user = self.requesters.current.as_ref().map(|requester| &requester.user);
        user.map_or_else(String::new, |user| format!(", requested by {user}"))
    }

    /// Returns the hold on the requested version, unless an override sends it out at once.
    pub(super) fn gate_effects(&self) -> Option<Effects> {
        self.closed_gate.filter(|_| self.override_reason.is_none()).map(ClosedGate::effects)
    }

    /// Returns the hold on the version while the hub is away, however the version is assigned. The deadline does not
    /// end this hold. Without pods to move, nobody needs the hub. If no report of the version is missing, reports that
    /// wait in the hub do not matter.
    pub(super) fn hub_away_effects(&self, unreported: usize) -> Option<Effects> {
        let matters = |away: &HubAway| !self.pods.is_empty() && (unreported > 0 || *away == HubAway::NotRenewing);
        let Explanation { reason, message } = self.hub_away.filter(matters)?.explanation();
        Some(Effects::blocked(reason, message))
    }

    /// Returns the wait until the version is published. Workloads are looked for only then, even if there is nothing to
    /// publish.
    pub(super) fn publish_wait(&self, version: &str) -> Option<Effects> {
        if let Some(PublishFailure { why: explanation, .. }) = self.publish_failure(version) {
            let message = format!("version {version} is not published yet: {}", explanation.message);
            // Another attempt can't help if the API server refuses the object.
            return Some(match explanation.reason {
                Reason::Refused => Effects::blocked(Reason::NotPublished, message),
                _ => Effects::wait(Reason::NotPublished, message, None),
            });
        }
        let (reason, message) = if self.has_objects {
            (Reason::Publishing, format!("version {version} is being published"))
        } else {
            (Reason::Restarting, "Nudge looks for workloads to restart".to_owned())
        };
        let is_settled = self.publish_attempt.is_some_and(|attempt| attempt.version == version);
        (!is_settled).then(|| Effects::wait(reason, message, None))
    }

    /// Returns the failure of the last attempt to publish the version.
    pub(super) fn publish_failure(&self, version: &str) -> Option<&PublishFailure> {
        self.publish_attempt.filter(|attempt| attempt.version == version)?.failure.as_ref()
    }

    /// Returns the time that a pod has to acknowledge. The time that the pod's report may wait in the hub's own queue
    /// does not count as silence, nor does the time that its containers have to show that they took the version. That
    /// time begins anew if what a container shows may belong to an earlier notification, so that it is notified again.
    pub(super) fn ack_timeout(&self, pod: &Subject) -> Millis {
        let wait = self.report_wait.clamp(0, MAX_LINE_WAIT);
        seconds(self.spec.ack_timeout_seconds) + 2 * seconds(pod.verify_seconds) + wait
    }

    /// Returns the longest time that any pod has to acknowledge.
    pub(super) fn longest_ack_timeout(&self) -> Millis {
        self.pods.iter().map(|pod| self.ack_timeout(pod)).max().unwrap_or_default()
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
