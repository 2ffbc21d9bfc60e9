//! The interface between a set of rules and a simulated cluster.

use k8s_openapi::api::core::v1::PodSpec;

/// Milliseconds since the rollout was requested.
pub(crate) type Millis = u64;

pub(crate) const SECOND: Millis = 1000;
pub(crate) const DAY: Millis = 24 * 3600 * SECOND;

/// A version of the simulated config.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Version {
    #[default]
    Current,
    Target,
}

/// A pod as the API server shows it.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // each is one fact that is seen; none follows from another
pub(crate) struct SeenPod {
    pub(crate) uid: String,
    /// The position of the workload in [`View::workloads`].
    pub(crate) workload: usize,
    /// The position of the pod in the order in which pods are moved.
    pub(crate) number: u32,
    /// The position of the node in [`View::nodes`]; none while it can't be scheduled.
    pub(crate) node: Option<usize>,
    /// Which template it was made of.
    pub(crate) template: u32,
    /// What its agent reported that it serves.
    pub(crate) runs: Option<Version>,
    pub(crate) acknowledged: bool,
    /// Whether the agent reported that it can't take what is assigned to it.
    pub(crate) refused: bool,
    pub(crate) ready: bool,
    pub(crate) was_ready: bool,
    /// Since when it is not Ready, in seconds since the rollout was requested.
    pub(crate) unready_since: Option<i64>,
    /// Whether the container that subscribes is ready.
    pub(crate) app_ready: bool,
    pub(crate) agent_ready: bool,
    pub(crate) running: bool,
    /// A container of it has done its work.
    pub(crate) ending: bool,
    pub(crate) terminating: bool,
    /// Whether the pod has the condition `DisruptionTarget`.
    pub(crate) disrupted: bool,
    /// Whether the pod does not exist any more.
    pub(crate) gone: bool,
    /// Restarts of its container that subscribes, of other injectors', and of its agent.
    pub(crate) restarts: i32,
    pub(crate) sidecar_restarts: i32,
    pub(crate) agent_restarts: i32,
    /// When one of the first, and of the second, last ended, in seconds since the rollout was requested.
    pub(crate) last_restart: Option<i64>,
    pub(crate) last_sidecar_restart: Option<i64>,
}

/// A node as the API server shows it.
#[derive(Clone, Debug)]
pub(crate) struct SeenNode {
    pub(crate) ready: bool,
    pub(crate) boot: u32,
}

/// The cluster as the API server shows it. Pods keep their positions; those that are gone are marked.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) pods: Vec<SeenPod>,
    pub(crate) nodes: Vec<SeenNode>,
    pub(crate) workloads: Vec<String>,
    /// Pods that changed since the last look, each once or more often.
    pub(crate) changed: Vec<usize>,
    /// Nodes changed since the last look: their pods are not listed in `changed`.
    pub(crate) nodes_changed: bool,
    /// The spec of every pod.
    pub(crate) template: PodSpec,
    /// Somebody holds the config.
    pub(crate) held: bool,
    pub(crate) bake_seconds: Option<u32>,
}

/// The progress of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The rollout moves, watches or waits.
    Moving,
    /// The rollout stands still because something may be wrong with the target.
    Inconclusive,
    /// The rollout stands still for another reason until somebody acts.
    Held,
    RolledBack,
    Passed,
}

/// The outcome of a look.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) progress: Progress,
    /// Some pods may be assigned another version from now on.
    pub(crate) reassigned: bool,
    /// When to look again although nothing changes.
    pub(crate) again: Option<Millis>,
    /// Why, for people.
    pub(crate) message: String,
}

/// Rules by which a rollout continues, is held or is rolled back: the leader of a control plane.
pub(crate) trait Judge {
    /// Looks at the cluster.
    fn look(&mut self, now: Millis, view: &View) -> Look;
    /// Returns the version that this pod is to run.
    fn assigned(&self, view: &View, pod: usize) -> Version;
    /// Another replica leads: it knows what is stored and nothing else.
    fn hand_over(&mut self);
}
