//! The real state of a pod.

use super::judge::{Millis, Version};

/// The real state of a pod, and its kubelet's memory.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools)] // each is one fact of a pod; none follows from another
pub(crate) struct Real {
    pub(super) assigned: Version,
    /// What its application runs.
    pub(super) runs: Version,
    /// The target harms it.
    pub(super) prone: bool,
    /// The target has made its application unready.
    pub(super) unready: bool,
    /// How many troubles of the environment it has.
    pub(super) troubles: u32,
    /// Whether the container runs.
    pub(super) up: bool,
    pub(super) serves: bool,
    /// Whether the node of the pod is away: nothing happens in it, and nothing is seen of it.
    pub(super) dark: bool,
    /// Whether the other containers of the pod exist.
    pub(super) complete: bool,
    /// When its probes are made within their period.
    pub(super) phase: Millis,
    /// What its probes have found, and counts findings that were called off.
    pub(super) probed: bool,
    pub(super) finding: u32,
    pub(super) pending: Option<bool>,
    /// Counts starts, and harm that was called off by another version.
    pub(super) start: u32,
    pub(super) started_at: Millis,
    pub(super) pause: Millis,
}

impl Real {
    pub(super) fn new(phase: Millis) -> Self {
        Self {
            assigned: Version::Current,
            runs: Version::Current,
            prone: false,
            unready: false,
            troubles: 0,
            up: false,
            serves: false,
            dark: false,
            complete: true,
            phase,
            probed: false,
            finding: 0,
            pending: None,
            start: 0,
            started_at: 0,
            pause: 0,
        }
    }

    /// Sets a state as of a pod that has been running for long.
    pub(super) fn settle(&mut self) {
        (self.up, self.serves, self.probed) = (true, true, true);
    }

    pub(super) fn answers(&self) -> bool {
        self.up && self.serves && self.troubles == 0 && !self.unready
    }
}
