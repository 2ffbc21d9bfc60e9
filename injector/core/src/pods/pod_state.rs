//! The few facts about an injected pod that Nudge needs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use nudge_api::{Explanation, PartKind};
use nudge_protocol::hub::PodContainer;
use nudge_protocol::{ConfigName, VersionName};

use super::commands::LastCommand;
use super::probe::ProbeTimes;
use super::report::{Report, ReportState};
use super::restarts::PodRestartHistory;
use crate::injection::PodReads;
use crate::keys::{PodKey, PodUid};
use crate::owners::{OwnerKind, WorkloadId};

/// The facts about an injected pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodState {
    /// The namespace of the pod.
    pub namespace: String,
    /// The name of the pod.
    pub name: String,
    /// The uid, which differs from that of an earlier pod of the name.
    pub uid: PodUid,
    /// The name of the service account that the pod runs as.
    pub service_account: String,
    /// The agent that was injected.
    pub agent: AgentState,
    /// The configs that the pod may read, in the order of merging: fixed in the agent container's environment.
    pub configs: Vec<ConfigName>,
    /// The workload that the pod belongs to; `None` for a bare pod.
    pub workload: Option<WorkloadId>,
    /// The user's containers, including native sidecars, but not the agent.
    pub containers: Vec<PodContainer>,
    /// The digest of the containers; empty only for no containers.
    pub containers_hash: String,
    /// The node of the pod; `None` until it is scheduled.
    pub node: Option<String>,
    /// Whether the pod has no node, because a port that it declares is taken on every possible node.
    pub lacks_port: bool,
    /// The readiness of the pod, now and before.
    pub readiness: Readiness,
    /// Whether the containers that get the configuration are ready.
    pub containers_ready: bool,
    /// How far the containers are.
    pub phase: PodPhase,
    /// The removal of the pod, if it is being removed.
    pub removal: Removal,
    /// The times of the pod's probes.
    pub probes: ProbeTimes,
    /// The template of the workload that the pod was made from, if a label has it.
    pub template: Option<String>,
    /// The labels that the pod was created with, or its present labels if the original ones are not known.
    pub labels: Arc<BTreeMap<String, String>>,
    /// The way the pod's processes take another version.
    pub update_mode: UpdateMode,
    /// Whether a container takes every version, because it watches its files or asks the agent, while others name the
    /// keys that they read.
    pub has_silent_takers: bool,
    /// The time that containers have, after their notification, to show that they took a version, in seconds.
    pub verify_seconds: u32,
    /// The time of the pod's creation, in seconds since 1970, if the object has it.
    pub created: Option<i64>,
    /// The restarts of the pod's containers.
    pub restarts: PodRestartHistory,
    /// The warnings of injection, a line for each.
    pub warnings: Option<String>,
    /// The report about the pod's versions, from the condition that the hub wrote.
    pub report: Option<Report>,
    /// The ConfigMaps and Secrets that the pod's volumes and variables name.
    pub references: BTreeSet<(PartKind, String)>,
    /// What the pod's containers read of its configs.
    pub reads: PodReads,
    /// The resource version of the object that this was read from.
    pub resource_version: Option<Box<str>>,
}

/// The state of a pod's agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentState {
    /// The version of the agent; empty if no label has it.
    pub version: String,
    /// The number of restarts of the agent's container.
    pub restarts: i32,
    /// The agent's last command to restart all containers in place.
    pub last_command: LastCommand,
}

/// The readiness of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readiness {
    /// The pod has never been Ready.
    #[default]
    Never,
    /// The pod is Ready.
    Ready,
    /// The pod was Ready before this time, in seconds since 1970 by the clock of its node.
    Lost {
        /// The time when the pod became unready.
        since: i64,
    },
}

/// How far the containers of a pod are, by its status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodPhase {
    /// The containers were not started yet.
    #[default]
    Pending,
    /// The containers were started.
    Running,
    /// The pod has succeeded or failed.
    Finished,
}

/// The removal of a pod, if it is being removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Removal {
    /// Nothing removes the pod.
    #[default]
    None,
    /// The pod will soon be evicted, preempted, or removed with its node (condition DisruptionTarget).
    Disrupted,
    /// The pod is being deleted.
    Terminating,
}

/// The way the processes of a pod take another version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpdateMode {
    /// The agent delivers the version to running processes.
    #[default]
    Live,
    /// The agent has all containers restarted in place (`notify: in-place`).
    InPlace,
    /// Only a new pod brings the version (`notify: rollout`): the agent keeps the version that the processes started
    /// with.
    ByRestart,
}

impl PodState {
    /// Returns the identity of the pod in the index.
    pub fn key(&self) -> PodKey {
        PodKey::new(&*self.namespace, &*self.name)
    }

    /// Returns whether only the resource version differs from `other`. It also changes with fields that are not read
    /// here.
    pub fn is_same_but_for_version(&mut self, other: &Self) -> bool {
        // A copy of the whole pod for each of its events would cost more than this exchange.
        let resource_version = std::mem::replace(&mut self.resource_version, other.resource_version.clone());
        let is_same = self == other;
        self.resource_version = resource_version;
        is_same
    }

    /// Returns the workload as statuses name it: empty for a bare pod.
    pub fn workload_name(&self) -> &str {
        self.workload.as_ref().map_or("", WorkloadId::as_str)
    }

    /// Returns whether the pod belongs to a Job.
    pub fn is_of_job(&self) -> bool {
        self.workload.as_ref().is_some_and(|id| id.kind() == OwnerKind::Job)
    }

    /// Returns whether the condition `Ready` of the pod is true.
    pub fn is_ready(&self) -> bool {
        self.readiness == Readiness::Ready
    }

    /// Returns whether the pod is Ready or has been.
    pub fn was_ready(&self) -> bool {
        self.readiness != Readiness::Never
    }

    /// Returns whether a container of the pod has done its work and is not started again.
    pub fn is_ending(&self) -> bool {
        self.containers.iter().any(|container| container.ended)
    }

    /// Returns whether the pod has succeeded or failed.
    pub fn is_finished(&self) -> bool {
        self.phase == PodPhase::Finished
    }

    /// Returns whether the pod is being deleted.
    pub fn is_terminating(&self) -> bool {
        self.removal == Removal::Terminating
    }

    /// Returns whether the pod has not finished, and is not being deleted.
    pub fn is_live(&self) -> bool {
        !self.is_terminating() && !self.is_finished()
    }

    /// Returns whether the pod's processes take another version only by a new pod.
    pub fn is_by_restart(&self) -> bool {
        self.update_mode == UpdateMode::ByRestart
    }

    /// Returns whether the agent has all containers restarted in place for another version.
    pub fn is_in_place(&self) -> bool {
        self.update_mode == UpdateMode::InPlace
    }

    /// Distinguishes two kinds of restarts since `before`, an earlier state of the same pod: crashes, and restarts that
    /// the API ordered.
    #[must_use]
    pub fn after(mut self, before: &Self) -> Self {
        self.restarts.follow(&before.restarts);
        self
    }

    /// Returns the version of this config that the pod runs.
    pub fn runs(&self, config: &str) -> Option<&VersionName> {
        let versions = &self.report.as_ref()?.versions;
        versions.iter().find(|(name, _)| name.as_str() == config)?.1.as_ref()
    }

    /// Returns why an assigned version of this config failed in the pod.
    pub fn failure(&self, config: &str) -> Option<Explanation> {
        match self.report.as_ref()?.state_of(config) {
            ReportState::Failed(why) => Some(why),
            _ => None,
        }
    }
}
