//! How far the pods with the target are.

use super::clock::seconds;
use super::evidence::Evidence;
use super::state::Move;
use super::{Now, Observation, Subject, Thresholds};

/// How many pods with the target are where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// What becomes of them counts, and they can be waited for.
    pub(super) judges: usize,
    /// Of these: they run the target and are Ready.
    pub(super) proven: usize,
    /// Of these: they run the target, and are not Ready.
    pub(super) fallen: usize,
    /// Of these: they did not acknowledge the target in time.
    pub(super) silent: usize,
    /// The name of the first of these.
    pub(super) first_silent: Option<String>,
    /// They can't be waited for.
    pub(super) not_waited_for: u32,
}

impl Tally {
    /// Counts them.
    pub(super) fn of(moved: &Move, evidence: &Evidence, seen: &Observation<'_>, now: Now<'_>) -> Self {
        let mut tally = Self::default();
        let patience = 2 * seconds(moved.watch.as_ref().map_or(0, |watch| watch.seconds));
        for pod in seen.pods.iter().filter(|pod| moved.thresholds.is_assigned(pod)) {
            let waited_for = evidence.judges(pod) && evidence.is_waited_for(pod.uid.as_str(), patience, now.steady);
            if !waited_for || !pod.is_reachable() {
                tally.not_waited_for += 1;
                continue;
            }
            tally.judges += 1;
            let taken = pod.has_taken(&moved.target);
            let late = || evidence.assigned_since(pod).is_none_or(|since| now.steady - since >= seen.ack_patience());
            if taken && pod.ready {
                tally.proven += 1;
            } else if taken {
                tally.fallen += 1;
            } else if pod.ready && late() {
                tally.silent += 1;
                tally.first_silent.get_or_insert_with(|| pod.name.clone());
            }
        }
        tally
    }

    /// Pods that have not reported the target yet.
    pub(super) fn owed(&self) -> usize {
        self.judges - self.proven - self.fallen
    }

    /// Pods that are not where they should be, and may still come there.
    pub(super) fn unproven(&self) -> usize {
        self.judges - self.proven - self.silent
    }

    /// Whether too many are silent: more than one and more than a quarter, or there is one and no pod has proven the target.
    pub(super) fn is_silent(&self) -> bool {
        self.silent > (self.judges / 4).max(1) || (self.silent > 0 && self.proven == 0)
    }

    /// Names what is silent, as the end of a message about the pods that are not.
    pub(super) fn without_silent(&self) -> String {
        match (&self.first_silent, self.silent) {
            (None, _) => String::new(),
            (Some(name), 1) => format!("; pod {name} has not acknowledged the version in time and is not waited for"),
            (Some(name), count) => {
                format!(
                    "; {count} pods, {name} among them, have not acknowledged the version in time and are not waited for"
                )
            }
        }
    }
}

/// Whether a pod without the target could judge it.
pub(super) fn could_judge(thresholds: &Thresholds, now: Now<'_>) -> impl Fn(&Subject) -> bool {
    let seconds = now.time.0.as_second();
    move |pod| !thresholds.is_assigned(pod) && pod.is_healthy(seconds)
}
