//! Harm to a pod.

use nudge_api::{Explanation, HarmedPod, Reason};

use crate::keys::PodUid;
use crate::rollout::clock::{Millis, SteadyTime};

/// The maximum time between the notification of a pod and harm that needs no comparison with other pods.
const IMMEDIATE_HARM: Millis = 5_000;
/// The maximum delay before a notification is observed.
const MAX_OBSERVATION_DELAY: Millis = 5_000;
/// The time added to the period of a probe: by then the leader has seen the other pods that were harmed in the same
/// moment.
const PROBE_MARGIN: Millis = 3_000;
/// The maximum time after harm until which it is compared with harm to other pods.
const MAX_COMPARISON_TIME: Millis = 60_000;

/// The way a pod was harmed.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::rollout) enum HarmKind {
    /// The pod's containers became unready.
    Unready,
    /// A container of the pod has not shown in time that it took the version.
    Unverified,
    /// A container of the pod restarted.
    Restarted,
    /// The pod's agent reported that it can't take the version.
    Reported(Explanation),
}

/// A pod that was harmed.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::rollout) struct Harm {
    pub(in crate::rollout) name: String,
    pub(in crate::rollout) uid: PodUid,
    pub(in crate::rollout) node: Option<String>,
    pub(in crate::rollout) kind: HarmKind,
    /// The time when the harm began.
    pub(in crate::rollout) at: SteadyTime,
    /// The time from the report of the pod that it has the target until the harm; `None` if this leader did not observe
    /// the report.
    pub(in crate::rollout) after_notification: Option<Millis>,
    /// Whether the target was assigned to the pod.
    pub(in crate::rollout) assigned: bool,
    /// The share of pods with the target among all pods that could be harmed at that time.
    pub(in crate::rollout) share: f64,
    /// Whether the harm is excused, because the version did not cause it.
    pub(in crate::rollout) excused: bool,
    /// The time between two attempts of the pod's slowest probe.
    pub(in crate::rollout) probe_interval: Millis,
    /// The minimum time that the pod's readiness probes take to notice harm.
    pub(in crate::rollout) notice_time: Millis,
}

impl HarmKind {
    /// Returns the reason that the status has for the harm.
    pub(in crate::rollout) fn reason(&self) -> Reason {
        match self {
            Self::Unready => Reason::PodNotReady,
            Self::Unverified => Reason::NotVerified,
            Self::Restarted => Reason::ContainerRestarted,
            Self::Reported(why) => why.reason,
        }
    }

    /// Returns whether the harm is a state that may pass, and not an event.
    pub(in crate::rollout) fn is_state(&self) -> bool {
        matches!(self, Self::Unready | Self::Unverified)
    }

    /// Returns whether the harm may be excused. A report may not, because it names its cause.
    pub(in crate::rollout) fn is_excusable(&self) -> bool {
        !matches!(self, Self::Reported(_))
    }
}

impl Harm {
    /// Returns whether the harm began so soon after the notification that nothing else can be the cause.
    pub(in crate::rollout) fn is_immediate(&self) -> bool {
        self.after_notification.is_some_and(|delay| delay <= IMMEDIATE_HARM)
    }

    /// Returns whether the probes noticed the harm sooner than they could have noticed anything that began with the
    /// notification.
    pub(in crate::rollout) fn began_before_notification(&self) -> bool {
        self.kind == HarmKind::Unready
            && self.after_notification.is_some_and(|delay| delay + MAX_OBSERVATION_DELAY < self.notice_time)
    }

    /// Returns when the leader must have seen the other pods that were harmed in the same moment.
    pub(in crate::rollout) fn comparison_time(&self) -> SteadyTime {
        self.at + (self.probe_interval + PROBE_MARGIN).min(MAX_COMPARISON_TIME)
    }

    /// Returns the harm as the status stores it.
    pub(in crate::rollout) fn status(&self) -> HarmedPod {
        let after_seconds = self.after_notification.map(|delay| delay / 1000);
        HarmedPod { name: self.name.clone(), reason: self.kind.reason(), after_seconds }
    }
}
