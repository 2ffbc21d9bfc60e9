//! The goal of the restarts of a rollout: which pods take the version by a restart.

use jiff::Timestamp;
use nudge_api::{AgentlessPolicy, PartKind, RolloutStage, VersionedConfig, VersionedConfigStatus};

use super::config_uses::ConfigUses;
use super::known_contents::KnownContents;
use crate::keys::ConfigKey;
use crate::pods::PodState;

/// The version that workloads take, and how far the rollout has come.
#[derive(Clone, Copy)]
pub struct RestartGoal<'a> {
    /// The key of the config.
    pub key: &'a ConfigKey,
    /// The config, as the leader last read it.
    pub config: &'a VersionedConfig,
    /// The status of the config.
    pub status: &'a VersionedConfigStatus,
    /// The version that workloads take.
    pub version: &'a str,
    /// The kinds of the published objects that have the version.
    pub published_objects: &'a [PartKind],
    /// The kinds of objects that bring the version.
    pub objects: &'a [PartKind],
    /// Whether pods return from another version.
    pub is_return: bool,
    /// The time of the rollout's last progress.
    pub last_progress: Timestamp,
    /// The maximum number of seconds without progress before the rollout fails.
    pub deadline_seconds: u32,
    /// The time of the check.
    pub now: Timestamp,
}

impl<'a> RestartGoal<'a> {
    /// Returns the published objects that are a reason to restart workloads without an agent.
    pub fn agentless_objects(&self) -> &'a [PartKind] {
        match self.config.spec.agentless_policy {
            AgentlessPolicy::Restart => self.published_objects,
            AgentlessPolicy::Ignore => &[],
        }
    }

    /// Returns whether the move changes nothing that pods with these uses read.
    pub fn is_unaffected(&self, uses: &ConfigUses, contents: &KnownContents) -> bool {
        let Self { key, config, status, is_return, .. } = self;
        let replaced = if *is_return { &status.target_version } else { &status.current_version };
        !self.published_objects.is_empty()
            && contents.is_unaffected(uses, key.name.as_str(), config, replaced.as_deref())
    }

    /// Returns whether pods with these uses take the version by a restart. The policy is about those without an agent.
    pub fn is_taken_by(&self, uses: &ConfigUses) -> bool {
        let objects = if uses.has_live_agent { self.published_objects } else { self.agentless_objects() };
        uses.takes(self.key.name.as_str(), objects)
    }

    /// Returns whether the pod has an agent that takes versions without a restart, and a container that does not.
    pub fn is_partly_by_restart(&self, pod: &PodState) -> bool {
        let mut fixed_reads = pod.reads.fixed_reads(self.key.name.as_str(), |kind| self.objects.contains(&kind));
        !pod.is_by_restart() && fixed_reads.next().is_some()
    }

    /// Returns whether a restart of this pod, whose agent takes versions without one, brings it the version.
    pub fn is_helped_by_restart(&self, pod: &PodState) -> bool {
        let brings = |kind: PartKind| self.objects.contains(&kind) && self.published_objects.contains(&kind);
        let mut fixed_reads = pod.reads.fixed_reads(self.key.name.as_str(), brings);
        !pod.is_by_restart() && fixed_reads.next().is_some()
    }
}

/// Returns whether workloads are restarted in this stage.
pub fn is_restarting(status: Option<&VersionedConfigStatus>) -> bool {
    let rollout = status.map(|status| &status.rollout);
    rollout.is_some_and(|rollout| rollout.is_return() || rollout.stage == Some(RolloutStage::Restarting))
}
