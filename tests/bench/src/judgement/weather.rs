//! The events in the cluster during a rollout that are not the version's fault.

use std::fmt;

/// What happens during a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    /// Background harm alone.
    Calm,
    /// A node is drained: its pods are evicted, and made again elsewhere.
    Drain,
    /// A node boots again within 40 s, before it counts as not Ready.
    Reboot,
    /// The kubelet of a node starts again: pods with probes are not Ready for up to a period.
    KubeletRestart,
    /// A node is not Ready for some minutes.
    NodeAway,
    /// A node is taken away: its pods end, and are made again elsewhere.
    Spot,
    /// An autoscaler makes pods, a third of which can't be scheduled.
    Scaling,
    /// An autoscaler makes pods, all of which start.
    Births,
    /// A workload gets another image.
    Image,
    /// A container of another injector is killed, in one pod in ten.
    Sidecar,
    /// A quarter of the pods are of Jobs: they come and go, and some fail and are tried again.
    Jobs,
    /// What the application depends on is away for one to three minutes: this percentage of all pods are not Ready.
    Outage(u32),
    /// The same, but pods crash again and again.
    CrashingOutage(u32),
    /// The config is on hold for a day.
    Hold,
    /// Three times another replica leads.
    Leaders,
}

impl fmt::Display for Weather {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Calm => "calm",
            Self::Drain => "drain",
            Self::Reboot => "reboot",
            Self::KubeletRestart => "kubelet-restart",
            Self::NodeAway => "node-away",
            Self::Spot => "spot",
            Self::Scaling => "scaling",
            Self::Births => "births",
            Self::Image => "image",
            Self::Sidecar => "sidecar-oom",
            Self::Jobs => "jobs",
            Self::Outage(percent) => return write!(out, "outage-{percent}%"),
            Self::CrashingOutage(percent) => return write!(out, "crashing-outage-{percent}%"),
            Self::Hold => "hold",
            Self::Leaders => "leaders",
        };
        out.write_str(name)
    }
}

impl Weather {
    pub(crate) fn is_outage(self) -> bool {
        matches!(self, Self::Outage(_) | Self::CrashingOutage(_))
    }
}

/// The rollout of an image.
pub(crate) struct Rolling {
    pub(super) workload: usize,
    /// Pods that are still to be made and to be ended.
    pub(super) to_bear: usize,
    pub(super) old: Vec<usize>,
}

impl Rolling {
    pub(super) fn template_of(&self, workload: usize) -> u32 {
        u32::from(self.workload == workload)
    }
}
