//! Any process of the fleet: a pod's agent or application, or one of the control plane.

use rand::RngExt as _;
use rand::rngs::StdRng;

use super::{PROCESS_NAMES, PickedPod, pick_any};

pub(super) enum Victim {
    Agent(PickedPod),
    Application(PickedPod),
    Role(&'static str),
}

impl Victim {
    pub(super) fn random(random: &mut StdRng) -> Self {
        match random.random_range(0..10) {
            0..3 => Self::Agent(PickedPod::random(random)),
            3..5 => Self::Application(PickedPod::random(random)),
            _ => Self::Role(pick_any(random, &PROCESS_NAMES)),
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Agent(pod) => format!("agent of {}", pod.affected_part()),
            Self::Application(pod) => format!("application of {}", pod.affected_part()),
            Self::Role(process) => (*process).to_owned(),
        }
    }

    /// Returns the parts of the fleet that have no other fault meanwhile.
    pub(super) fn affected_parts(&self) -> Vec<String> {
        match self {
            Self::Agent(pod) | Self::Application(pod) => vec![pod.affected_part()],
            Self::Role(process) => vec![(*process).to_owned()],
        }
    }
}
