//! The number of pods that have the target, by how far they are.

use std::collections::HashSet;

use nudge_protocol::plural::counted;

use super::evidence::Evidence;
use crate::owners::WorkloadId;
use crate::rollout::clock::seconds;
use crate::rollout::state::Transfer;
use crate::rollout::{Observation, Subject};

/// The workload and the template of pods, which read the same keys.
type PodOrigin<'a> = (Option<&'a WorkloadId>, Option<&'a str>);

/// The number of pods with the target in each state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::rollout) struct Tally {
    /// The number of judges: pods whose health counts as evidence for or against the target, and whose report can be
    /// waited for.
    pub(in crate::rollout) judges: usize,
    /// The number of judges that run the target and are Ready.
    pub(in crate::rollout) proven: usize,
    /// The number of judges that run the target and are not Ready.
    pub(in crate::rollout) fallen: usize,
    /// The number of judges that did not acknowledge the target in time.
    pub(in crate::rollout) silent: usize,
    /// The name of the first silent pod.
    pub(in crate::rollout) first_silent: Option<String>,
    /// The number of pods that can't be waited for.
    pub(in crate::rollout) not_waited_for: u32,
    /// The number of pods that can't be waited for, and whose containers may be notified of the target.
    pub(in crate::rollout) unjudged: u32,
    /// The number of pods whose containers read no key that changed.
    pub(in crate::rollout) unchanged: u32,
}

impl Tally {
    /// Counts the pods of a move.
    pub(in crate::rollout) fn count(transfer: &Transfer, evidence: &Evidence, observation: &Observation<'_>) -> Self {
        let mut tally = Self::default();
        let now = observation.now.steady;
        let unaffected = unaffected_origins(transfer, observation);
        let patience = 2 * seconds(transfer.watch.as_ref().map_or(0, |watch| watch.seconds));
        for pod in observation.pods.iter().filter(|pod| transfer.thresholds.is_assigned(pod)) {
            if pod.is_unaffected_by(&transfer.target) {
                tally.unchanged += 1;
                continue;
            }
            let waited_for = evidence.judges(pod) && evidence.is_waited_for(&pod.uid, patience, now);
            if !waited_for || !pod.is_reachable() {
                tally.not_waited_for += 1;
                tally.unjudged += u32::from(!unaffected.contains(&origin(pod)));
                continue;
            }
            tally.judges += 1;
            let has_taken = pod.has_taken(&transfer.target);
            let is_late =
                || evidence.assigned_since(pod).is_none_or(|since| now - since >= observation.ack_timeout(pod));
            if has_taken && pod.is_ready() {
                tally.proven += 1;
            } else if has_taken {
                tally.fallen += 1;
            } else if pod.is_ready() && is_late() {
                tally.silent += 1;
                tally.first_silent.get_or_insert_with(|| pod.name.clone());
            }
        }
        tally
    }

    /// Returns the number of pods that have not reported the target yet.
    pub(in crate::rollout) fn unreported(&self) -> usize {
        self.judges - self.proven - self.fallen
    }

    /// Returns the number of judges that have not proven the target yet, but still may.
    pub(in crate::rollout) fn unproven(&self) -> usize {
        self.judges - self.proven - self.silent
    }

    /// Returns whether pods have the target, and none of them is affected by it.
    pub(in crate::rollout) fn is_unaffected(&self) -> bool {
        self.unchanged > 0 && self.judges == 0 && self.unjudged == 0
    }

    /// Returns whether too many pods are silent: more than one and more than a quarter, or one while no pod has proven
    /// the target.
    pub(in crate::rollout) fn is_silent(&self) -> bool {
        self.silent > (self.judges / 4).max(1) || (self.silent > 0 && self.proven == 0)
    }

    /// Returns the end of a message about the pods that are not silent, which names the silent ones.
    pub(in crate::rollout) fn silent_phrase(&self) -> String {
        match (&self.first_silent, self.silent) {
            (None, _) => String::new(),
            (Some(name), 1) => format!("; pod {name} has not acknowledged the version in time and is not waited for"),
            (Some(name), count) => {
                let pods = counted(count, "pod");
                format!("; {pods} (first: {name}) have not acknowledged the version in time and are not waited for")
            }
        }
    }
}

fn origin(pod: &Subject) -> PodOrigin<'_> {
    (pod.workload.as_ref(), pod.template.as_deref())
}

/// Returns the origins of pods that have the target, and whose containers read no key that changed.
fn unaffected_origins<'a>(transfer: &Transfer, observation: &Observation<'a>) -> HashSet<PodOrigin<'a>> {
    // Pods without a workload have nothing in common.
    let is_unaffected = |pod: &&Subject| {
        pod.workload.is_some() && transfer.thresholds.is_assigned(pod) && pod.is_unaffected_by(&transfer.target)
    };
    observation.pods.iter().filter(is_unaffected).map(origin).collect()
}

/// Returns whether the health of a pod without the target could count as evidence about it.
pub(in crate::rollout) fn judge_filter<'a>(
    transfer: &Transfer,
    observation: &Observation<'a>,
) -> impl Fn(&Subject) -> bool + 'a {
    let seconds = observation.now.time.0.as_second();
    let (thresholds, unaffected) = (transfer.thresholds.clone(), unaffected_origins(transfer, observation));
    move |pod| !thresholds.is_assigned(pod) && pod.is_healthy(seconds) && !unaffected.contains(&origin(pod))
}
