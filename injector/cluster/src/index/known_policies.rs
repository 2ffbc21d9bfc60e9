//! What the watch has shown of the policies of the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use nudge_api::RolloutPolicy;
use nudge_core::governance::{MOST_POLICIES, Policies};

use super::space::Labels;
use crate::watch_health::WatchHealth;

/// Why policies can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadFault {
    /// The cluster does not have the kind.
    Missing,
    /// Nudge has no right.
    Forbidden,
    /// For another reason, which the log has.
    Other,
}

impl ReadFault {
    /// The message for users, who can't read the log.
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

/// One policy; `Err` for one that this release can't parse, with the reason.
pub(super) type Policy = Result<Arc<RolloutPolicy>, String>;

/// What a list that has begun has shown.
#[derive(Default)]
pub(super) struct PartialList {
    pub(super) all: BTreeMap<String, Policy>,
    pub(super) too_many: bool,
}

/// What is known of the policies.
pub(super) struct KnownPolicies {
    pub(super) health: WatchHealth,
    /// By name. Absent before they were listed once.
    pub(super) all: Option<BTreeMap<String, Policy>>,
    /// Whether there are more than are kept.
    pub(super) too_many: bool,
    /// What a list that has begun has shown.
    pub(super) listing: Option<PartialList>,
    /// Whether the cluster does not have the kind, so there are none.
    pub(super) absent: bool,
    /// Why they can't be read, after some failures in a row.
    pub(super) fault: Option<ReadFault>,
    /// When the API server was last asked because somebody waits.
    pub(super) asked: Option<Instant>,
}

impl KnownPolicies {
    pub(super) fn new(health: WatchHealth) -> Self {
        Self { health, all: None, too_many: false, listing: None, absent: false, fault: None, asked: None }
    }

    /// Their watch, where the cluster has the kind.
    pub(super) fn watch(&self) -> Option<&WatchHealth> {
        (!self.absent).then_some(&self.health)
    }

    /// Returns whether all is known, as far as the API server has said.
    pub(super) fn is_current(&self) -> bool {
        self.absent || (self.all.is_some() && !self.health.is_doubted())
    }

    /// The policies that select a namespace with these labels.
    pub(super) fn selecting(&self, labels: &Labels) -> Policies {
        if !self.is_current() {
            let why = self.fault.map_or("RolloutPolicies have not been read yet", ReadFault::message);
            return Policies::Unknown(why.to_owned());
        }
        if self.too_many {
            return Policies::Unknown(format!("there are more than {MOST_POLICIES} RolloutPolicies; delete some"));
        }
        let mut known = Vec::new();
        for (name, policy) in self.all.iter().flatten() {
            match policy {
                Ok(policy) if policy.spec.namespace_selector.selects(labels) => known.push(Arc::clone(policy)),
                Ok(_) => {}
                Err(reason) => {
                    let why = format!("this release of Nudge can't read RolloutPolicy {name}: {reason}");
                    return Policies::Unknown(why);
                }
            }
        }
        Policies::Known(known)
    }
}
