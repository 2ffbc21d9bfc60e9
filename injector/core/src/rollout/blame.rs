//! Whether the trouble of a pod is blamed on the version that is assigned to it.

use nudge_api::{Explanation, Reason};

use super::state::Move;
use super::waited_for::{reasons, waited_for};
use super::{Observation, Subject};

/// Reasons for which an agent does not serve the version that is assigned to it.
const REFUSED: [Reason; 2] = [Reason::TooLarge, Reason::Failed];

/// What a pod says about the version that is assigned to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Opinion {
    /// It runs it, and is Ready.
    Proven,
    /// Not yet.
    Unproven,
    /// It did well before and does not any more.
    Against(Explanation),
}

impl Subject {
    /// What it says about `version`, which is assigned to it. `restarted`: one of its containers has restarted since.
    pub(super) fn opinion(&self, version: &str, restarted: bool) -> Opinion {
        // While its node is away nothing is known of it. Neither that nor that its work is done is its fault.
        if !self.node_ready || self.ending {
            return Opinion::Unproven;
        }
        let name = &self.name;
        if restarted {
            let message =
                format!("a container of pod {name} restarted after version {version} was assigned to the pod");
            return Opinion::Against(Reason::ContainerRestarted.explained(message));
        }
        // An agent that ends says nothing about the application; one that does not come back is overdue in the end.
        if !self.ready && self.was_ready && !self.agent_away {
            let message = format!("pod {name} was Ready and is not Ready since version {version} was assigned to it");
            return Opinion::Against(Reason::PodNotReady.explained(message));
        }
        // A report may be about the version before. A refusal is about this one although the pod still runs the one before.
        let about = |reason: Reason| self.runs.as_deref() == Some(version) || REFUSED.contains(&reason);
        if let Some(failure) = self.failure.as_ref().filter(|failure| about(failure.reason)) {
            let message = format!("pod {name} reported of version {version}: {}", failure.message);
            return Opinion::Against(failure.reason.explained(message));
        }
        if self.ready && self.has_taken(version) { Opinion::Proven } else { Opinion::Unproven }
    }
}

/// The first thing that a pod says against the target: one that is waited for, or one that did not acknowledge and is not Ready any more.
pub(super) fn blame(moved: &Move, seen: &Observation<'_>) -> Option<Explanation> {
    let has_restarted = moved.restarts.has_restarted();
    let waited_for = waited_for(moved, seen).into_iter().map(|pod| pod.opinion(&moved.target, has_restarted(pod)));
    let reasons = reasons(moved);
    let silent = seen
        .pods
        .iter()
        .filter(|pod| !pod.ready && reasons.get(pod.uid.as_str()) == Some(&Reason::NotAcknowledged))
        .map(|pod| pod.opinion(&moved.target, false));
    waited_for.chain(silent).find_map(|opinion| match opinion {
        Opinion::Against(explanation) => Some(explanation),
        _ => None,
    })
}
