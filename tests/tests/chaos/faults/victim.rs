//! Any process of the fleet: a pod's agent or application, or one of the control plane.

use rand::RngExt as _;
use rand::rngs::StdRng;

use super::{Picked, STATIONS, any};

pub(super) enum Victim {
    Agent(Picked),
    Application(Picked),
    Role(&'static str),
}

impl Victim {
    pub(super) fn random(random: &mut StdRng) -> Self {
        match random.random_range(0..10) {
            0..3 => Self::Agent(Picked::random(random)),
            3..5 => Self::Application(Picked::random(random)),
            _ => Self::Role(any(random, &STATIONS)),
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Agent(pod) => format!("agent of {}", pod.part()),
            Self::Application(pod) => format!("application of {}", pod.part()),
            Self::Role(station) => (*station).to_owned(),
        }
    }

    /// What has no other fault meanwhile.
    pub(super) fn parts(&self) -> Vec<String> {
        match self {
            Self::Agent(pod) | Self::Application(pod) => vec![pod.part()],
            Self::Role(station) => vec![(*station).to_owned()],
        }
    }
}
