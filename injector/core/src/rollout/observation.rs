//! What a transition of the rollout looks at, beside its state and the evidence.

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{BackgroundStatus, RolloutSpec};

use super::Subject;

/// The state of the workloads that take the version by a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restarts {
    /// All of them run it, or there are none.
    Done,
    /// One of them is being restarted: the message.
    Busy(String),
    /// One of them did not come up: the message.
    Failed(String),
    /// Processes that take a version by a restart alone were not restarted, and somebody must act: the message.
    Held(String),
}

/// What became of the pods of a node that do not run the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Neighbours {
    /// How many there are, of any config.
    pub pods: u32,
    /// How many of them became unready or restarted a short time ago.
    pub harmed: u32,
}

/// What is observed of a config.
#[derive(Clone, Debug)]
pub struct Observation<'a> {
    /// How pods are moved.
    pub spec: &'a RolloutSpec,
    /// The generation of the spec.
    pub generation: i64,
    /// The version that the config is to have; pods can be moved to it.
    pub requested: &'a str,
    /// The requested version is to be assigned to all pods at once.
    pub at_once: bool,
    /// The pods that steps move.
    pub pods: &'a [Subject],
    /// What became of others on the nodes of pods that are not ready.
    pub neighbours: &'a HashMap<String, Neighbours>,
    /// How often pods of the config are harmed anyway.
    pub background: Option<&'a BackgroundStatus>,
    /// Another config that shares pods with this one and is being moved.
    pub waiting_for: Option<&'a str>,
    /// The version that the published ConfigMap was last brought to, or that could not be written there.
    pub published: Option<&'a str>,
    /// Since when workloads may have been restarted with the current version, if that is known.
    pub current_since: Option<&'a Time>,
    /// The state of the workloads that are restarted.
    pub restart: &'a Restarts,
}
