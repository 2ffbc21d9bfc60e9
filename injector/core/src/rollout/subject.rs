//! A pod as a rollout sees it.

use nudge_api::{Explanation, Reason, SkippedPod};
use ring::digest::{SHA256, digest};

use crate::identity::Identity;
use crate::pods::{PodState, ReportState, SlowestProbe};

/// How long after a restart a pod may still be in a loop of them, in seconds: the kubelet waits for up to five minutes between two.
const RESTLESS: i64 = 600;

/// The workload that all Jobs of a namespace count as: their pods may be done before anything is seen of them.
pub(super) const JOBS: &str = "Job";

/// The pod's position in the order in which pods are moved: the first 32 bits of SHA-256(identity of the config ‖ pod uid), where the
/// identity is written like a uid.
pub fn pod_number(identity: Identity, pod_uid: &str) -> u32 {
    let hash = digest(&SHA256, [&identity.uuid(), pod_uid].concat().as_bytes());
    hash.as_ref().iter().take(4).fold(0, |number, &byte| number << 8 | u32::from(byte))
}

/// A pod as a rollout sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each is one fact that is observed; none follows from another
pub struct Subject {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its workload; empty for a bare pod.
    pub workload: String,
    /// Its position in the order in which pods are moved.
    pub number: u32,
    /// The version of the config that it says it serves.
    pub runs: Option<String>,
    /// Its containers have acknowledged what it serves.
    pub acknowledged: bool,
    /// It is Ready.
    pub ready: bool,
    /// It is Ready or has been.
    pub was_ready: bool,
    /// It is not Ready because its agent is being started again, and for no other known reason.
    pub agent_away: bool,
    /// A container of it has done its work and is not started again.
    pub ending: bool,
    /// It has a node, and its containers were started.
    pub running: bool,
    /// Its node is Ready, as far as is known.
    pub node_ready: bool,
    /// Its agent has reported since the pod was made.
    pub in_contact: bool,
    /// Restarts of its containers other than the agent.
    pub restarts: i32,
    /// When one of them last ended before it was started again, in seconds since 1970.
    pub last_restart: Option<i64>,
    /// What it reported as a failure.
    pub failure: Option<Explanation>,
    /// The probe that takes longest to notice that its application got worse.
    pub slowest_probe: Option<SlowestProbe>,
}

impl Subject {
    /// The pod, seen from the config. `None` where it is terminating or has finished: it no longer counts.
    pub fn of(pod: &PodState, config: &str, identity: Identity, node_ready: bool) -> Option<Self> {
        if pod.terminating || pod.finished {
            return None;
        }
        let state = pod.report.as_ref().map(|report| &report.state);
        Some(Self {
            name: pod.name.clone(),
            uid: pod.uid.to_string(),
            workload: pod.workload.clone(),
            number: pod_number(identity, pod.uid.as_str()),
            runs: pod.runs(config).map(ToString::to_string),
            // A pod that can't get another of its configs has taken this one all the same.
            acknowledged: matches!(state, Some(ReportState::Acknowledged | ReportState::Unavailable(_))),
            ready: pod.ready,
            was_ready: pod.was_ready,
            agent_away: pod.agent_away,
            ending: pod.ending,
            running: pod.running,
            node_ready,
            in_contact: !matches!(state, None | Some(ReportState::NoContact(_))),
            restarts: pod.restarts,
            last_restart: pod.last_restart,
            failure: pod.failure().cloned(),
            slowest_probe: pod.slowest_probe.clone(),
        })
    }

    /// Why nothing can be expected of it, whatever is assigned to it.
    pub(super) fn unreachable(&self) -> Option<Reason> {
        if !self.node_ready {
            return Some(Reason::NodeNotReady);
        }
        if !self.running {
            return Some(Reason::Pending);
        }
        if self.ending {
            return Some(Reason::Ending);
        }
        (!self.in_contact).then_some(Reason::NoContact)
    }

    /// Why it can't be waited for if a version is assigned to it at `now` (seconds since 1970).
    pub(super) fn unfit(&self, now: i64) -> Option<Reason> {
        if let Some(reason) = self.unreachable() {
            return Some(reason);
        }
        if !self.ready {
            return Some(Reason::NotReady);
        }
        if self.last_restart.is_some_and(|restart| now - restart < RESTLESS) {
            return Some(Reason::RestartedRecently);
        }
        self.failure.as_ref().map(|_| Reason::FailedBefore)
    }

    /// When it counts as well again if it does not restart once more, in seconds since 1970.
    pub(super) fn settles(&self) -> Option<i64> {
        self.last_restart.map(|restart| restart + RESTLESS)
    }

    /// Whether it runs `version`, as far as it says, and its containers know.
    pub(super) fn has_taken(&self, version: &str) -> bool {
        self.acknowledged && self.runs.as_deref() == Some(version)
    }

    /// Its entry among the pods that are not waited for; `before` where it could not be when the version was assigned to it either.
    pub(super) fn skipped(&self, reason: Reason, before: bool) -> SkippedPod {
        SkippedPod { name: self.name.clone(), uid: self.uid.clone(), reason, before }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_fixed_for_all_releases() {
        // Releases before status.identity hashed the uid of the config: printf 0af7651c-d43b-41d5-8e2f-0123456789abb | sha256sum
        assert_eq!(pod_number(Identity::of_uid("0af7651c-d43b-41d5-8e2f-0123456789ab"), "b"), 0xa453_e55a);
    }
}
