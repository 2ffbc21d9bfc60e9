//! A pod as a rollout sees it, and what it says about the version that it was told. Pure.

use super::pod_number;
use crate::pods::{PodState, ReportState, SlowestProbe};

/// How long after a restart a pod may still be in a loop of them, in seconds: the kubelet waits for up to five minutes between two.
const RESTLESS: i64 = 600;

/// The workload that all Jobs of a namespace count as: their pods may be done before anything is seen of them.
pub(super) const JOBS: &str = "Job";

/// Why a pod is not waited for whose work is done. It holds nobody up.
pub(super) const ENDING: &str = "Ending";

/// Reasons for which an agent does not serve what it was told.
const REFUSED: [&str; 2] = ["TooLarge", "Failed"];

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each is one fact that is seen; none follows from another
pub struct Subject {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its workload; empty for a bare pod.
    pub workload: String,
    /// Its place in the order in which pods are moved.
    pub number: u32,
    /// The version of the config that it says it serves.
    pub runs: Option<String>,
    /// Its containers have acknowledged what it serves.
    pub acknowledged: bool,
    /// It is Ready.
    pub ready: bool,
    /// It is Ready or has been.
    pub was_ready: bool,
    /// It is not Ready because its agent is being started again, and for no other reason that is seen.
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
    /// What it reported as a failure: a word and a sentence.
    pub failure: Option<(String, String)>,
    /// The probe that takes longest to notice that its application got worse.
    pub slowest_probe: Option<SlowestProbe>,
}

/// What a pod says about the version that it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Opinion {
    /// It runs it, and is Ready.
    Proven,
    /// Not yet.
    Unproven,
    /// It did well before and does not any more: a word and a sentence.
    Against(String, String),
}

impl Subject {
    /// The pod, seen from the config. `None` where it is going or has finished: it counts no more.
    pub fn of(pod: &PodState, config: &str, config_uid: &str, node_ready: bool) -> Option<Self> {
        if pod.terminating || pod.finished {
            return None;
        }
        let state = pod.report.as_ref().map(|report| &report.state);
        let failure = pod.failure().map(|why| (why.reason.to_string(), why.message.clone()));
        Some(Self {
            name: pod.name.clone(),
            uid: pod.uid.to_string(),
            workload: pod.workload.clone(),
            number: pod_number(config_uid, pod.uid.as_str()),
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
            failure,
            slowest_probe: pod.slowest_probe.clone(),
        })
    }

    /// Why nothing can be expected of it, whatever it is told.
    pub(super) fn unreachable(&self) -> Option<&'static str> {
        if !self.node_ready {
            return Some("NodeNotReady");
        }
        if !self.running {
            return Some("Pending");
        }
        if self.ending {
            return Some(ENDING);
        }
        (!self.in_contact).then_some("NoContact")
    }

    /// Why it can't be waited for, were it told at `now` (seconds since 1970).
    pub(super) fn unfit(&self, now: i64) -> Option<&'static str> {
        if let Some(reason) = self.unreachable() {
            return Some(reason);
        }
        if !self.ready {
            return Some("NotReady");
        }
        if self.last_restart.is_some_and(|restart| now - restart < RESTLESS) {
            return Some("RestartedRecently");
        }
        self.failure.as_ref().map(|_| "FailedBefore")
    }

    /// When it counts as well again if it does not restart once more, in seconds since 1970.
    pub(super) fn settles(&self) -> Option<i64> {
        self.last_restart.map(|restart| restart + RESTLESS)
    }

    /// Whether it runs `version`, as far as it says, and its containers know.
    pub(super) fn has_taken(&self, version: &str) -> bool {
        self.acknowledged && self.runs.as_deref() == Some(version)
    }

    /// What it says about `version`, which it was told and is waited for.
    ///
    /// `restarted` says whether one of its containers has been restarted since.
    pub(super) fn opinion(&self, version: &str, restarted: bool) -> Opinion {
        // While its node is away nothing is known of it: not its fault. Nor is it that its work is done.
        if !self.node_ready || self.ending {
            return Opinion::Unproven;
        }
        if restarted {
            let message = format!("a container of pod {} restarted after it was told version {version}", self.name);
            return Opinion::Against("ContainerRestarted".to_owned(), message);
        }
        // An agent that ends says nothing about the application; one that does not come back is overdue some day.
        if !self.ready && self.was_ready && !self.agent_away {
            let message = format!("pod {} was Ready and is not since it was told version {version}", self.name);
            return Opinion::Against("PodNotReady".to_owned(), message);
        }
        // What containers said may be about the version before; that a version can't be taken in comes while that one still runs.
        let about = |reason: &str| self.runs.as_deref() == Some(version) || REFUSED.contains(&reason);
        if let Some((reason, message)) = self.failure.as_ref().filter(|(reason, _)| about(reason)) {
            let message = format!("pod {} reported of version {version}: {message}", self.name);
            return Opinion::Against(reason.clone(), message);
        }
        if self.ready && self.has_taken(version) { Opinion::Proven } else { Opinion::Unproven }
    }
}
