//! Harm to a pod.

use nudge_api::{Explanation, HarmedPod, Reason};

use super::clock::Millis;

/// The maximum time between the notification of a pod and harm that needs no comparison with other pods.
const IMMEDIATE_HARM: Millis = 5_000;
/// The maximum delay with which a notification is observed.
const MAX_OBSERVATION_DELAY: Millis = 5_000;
/// The time added to the period of a probe: until then, other pods that were harmed in the same moment are observed to be.
const PROBE_MARGIN: Millis = 3_000;
/// The longest time for which others are looked at.
const MAX_COMPARISON_TIME: Millis = 60_000;

/// How a pod was harmed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum HarmKind {
    /// The pod's containers became unready.
    Unready,
    /// A container of the pod restarted.
    Restarted,
    /// The pod's agent reported that it can't take the version.
    Reported(Explanation),
}

/// A pod that was harmed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Harm {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) node: String,
    pub(super) kind: HarmKind,
    /// When the harm began.
    pub(super) at: Millis,
    /// How long after the pod said that it has the target, or before; absent where this leader did not see it.
    pub(super) after: Option<Millis>,
    /// Whether the target was assigned to the pod.
    pub(super) assigned: bool,
    /// The share of pods with the target among all that could be harmed then.
    pub(super) share: f64,
    /// Whether the harm is excused, because the version did not cause it.
    pub(super) excused: bool,
    /// Time between two attempts of its slowest probe, in seconds.
    pub(super) interval: u32,
    /// How long its readiness probes take at least to notice harm, in seconds.
    pub(super) notices_after: u32,
}

impl HarmKind {
    /// Returns the reason that the status has for the harm.
    pub(super) fn reason(&self) -> Reason {
        match self {
            Self::Unready => Reason::PodNotReady,
            Self::Restarted => Reason::ContainerRestarted,
            Self::Reported(why) => why.reason,
        }
    }

    /// Returns whether the harm may be excused, which a report may not: it says what it is about.
    pub(super) fn may_be_excused(&self) -> bool {
        !matches!(self, Self::Reported(_))
    }
}

impl Harm {
    /// Returns whether the harm began so soon after the notification that nothing else can be the cause.
    pub(super) fn is_at_once(&self) -> bool {
        self.after.is_some_and(|after| after <= IMMEDIATE_HARM)
    }

    /// Returns whether the probes noticed the harm sooner than they could have noticed anything that began with the notification.
    pub(super) fn began_before_notification(&self) -> bool {
        self.kind == HarmKind::Unready
            && self.after.is_some_and(|after| after + MAX_OBSERVATION_DELAY < Millis::from(self.notices_after) * 1000)
    }

    /// Returns when other pods that were harmed in the same moment have been observed to be.
    pub(super) fn compared_at(&self) -> Millis {
        self.at + (Millis::from(self.interval) * 1000 + PROBE_MARGIN).min(MAX_COMPARISON_TIME)
    }

    /// As the status has it.
    pub(super) fn status(&self) -> HarmedPod {
        let after_seconds = self.after.map(|after| after / 1000);
        HarmedPod { name: self.name.clone(), reason: self.kind.reason(), after_seconds }
    }
}
