//! The policies of the cluster, as far as the watch has shown them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use nudge_api::RolloutPolicy;
use nudge_core::governance::{MAX_POLICIES, Policies};

use super::namespace_state::Labels;
use crate::watch_health::WatchHealth;

/// The reason why policies can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadFault {
    /// The cluster does not have the kind.
    Missing,
    /// Nudge has no right to read them.
    Forbidden,
    /// The log has the reason.
    Other,
}

impl ReadFault {
    /// Returns the message for users, who can't read the log.
    fn message(self) -> &'static str {
        match self {
            Self::Forbidden => {
                "the control plane has no right to read RolloutPolicies; apply deploy/base of this release, whose ClusterRole nudge-injector has it"
            }
            Self::Missing | Self::Other => {
                "the control plane can't read RolloutPolicies at the moment; its log says why"
            }
        }
    }
}

/// A policy, or the reason why this release can't parse it.
pub(super) type Policy = Result<Arc<RolloutPolicy>, String>;

#[derive(Default)]
pub(super) struct PolicyList {
    pub(super) by_name: BTreeMap<String, Policy>,
    /// Whether there are more than are kept.
    pub(super) too_many: bool,
}

/// The state of the policies, as the API server has shown it.
pub(super) enum PolicyState {
    /// The first list is not complete yet.
    Unlisted,
    /// The cluster does not have the kind, so there are no policies.
    Absent,
    /// A list was complete, and the watch has kept it up to date.
    Listed(PolicyList),
}

/// The knowledge of the policies in the cluster.
pub(super) struct KnownPolicies {
    pub(super) health: WatchHealth,
    pub(super) state: PolicyState,
    /// The list that has begun.
    pub(super) listing: Option<PolicyList>,
    /// The reason why the policies can't be read, after some failures in a row.
    pub(super) fault: Option<ReadFault>,
    /// The time when the API server was last asked because of waiting configs.
    pub(super) asked_at: Option<Instant>,
}

impl KnownPolicies {
    pub(super) fn new(health: WatchHealth) -> Self {
        Self { health, state: PolicyState::Unlisted, listing: None, fault: None, asked_at: None }
    }

    /// Returns the health of the watch, if the cluster has the kind.
    pub(super) fn watch(&self) -> Option<&WatchHealth> {
        (!matches!(self.state, PolicyState::Absent)).then_some(&self.health)
    }

    /// Returns whether all policies are known, as far as the API server has said.
    pub(super) fn is_current(&self) -> bool {
        match self.state {
            PolicyState::Unlisted => false,
            PolicyState::Absent => true,
            PolicyState::Listed(_) => !self.health.is_doubted(),
        }
    }

    /// Returns the list, if policies were ever listed.
    pub(super) fn list(&self) -> Option<&PolicyList> {
        match &self.state {
            PolicyState::Listed(list) => Some(list),
            PolicyState::Unlisted | PolicyState::Absent => None,
        }
    }

    /// Returns the policies that select a namespace with these labels.
    pub(super) fn selecting(&self, labels: &Labels) -> Policies {
        if !self.is_current() {
            let cause = self.fault.map_or("RolloutPolicies have not been read yet", ReadFault::message);
            return Policies::Unknown(cause.to_owned());
        }
        let Some(list) = self.list() else { return Policies::default() };
        if list.too_many {
            return Policies::Unknown(format!("there are more than {MAX_POLICIES} RolloutPolicies; delete some"));
        }
        let mut selecting = Vec::new();
        for (name, policy) in &list.by_name {
            match policy {
                Ok(policy) if policy.spec.namespace_selector.selects(labels) => selecting.push(Arc::clone(policy)),
                Ok(_) => {}
                Err(reason) => {
                    let cause = format!("this release of Nudge can't read RolloutPolicy {name}: {reason}");
                    return Policies::Unknown(cause);
                }
            }
        }
        Policies::Known(selecting)
    }
}
