//! The outcome of one rollout, and of many rollouts.

use super::judge::{Millis, Progress};

/// What became of a rollout.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) progress: Option<Progress>,
    /// Since when, and why.
    pub(crate) since: Millis,
    pub(crate) message: String,
    /// Whether the rollout was inconclusive for a time.
    pub(crate) was_inconclusive: bool,
    /// How often the target was assigned to more pods, to how many first, and when.
    pub(crate) steps: usize,
    pub(crate) first_step: usize,
    pub(crate) first_assigned: Millis,
    /// Most pods that it was assigned to at a time.
    pub(crate) exposed: usize,
    /// Pods that were born with the target and that it harms.
    pub(crate) born_harmed: usize,
    /// Pods that did not have the target when the weather struck.
    pub(crate) unassigned: Option<usize>,
    pub(crate) looks: u64,
    pub(crate) duration: Millis,
    /// How long pods were not Ready that could have been.
    pub(crate) unwell: Millis,
    /// What was said, and when; where somebody requests it.
    pub(crate) diary: Option<Vec<String>>,
}

impl Outcome {
    pub(super) fn record_progress(&mut self, progress: Progress, now: Millis, message: String) {
        self.was_inconclusive |= progress == Progress::Inconclusive;
        (self.progress, self.since, self.message) = (Some(progress), now, message);
    }

    /// Records the progress, if it is new.
    pub(super) fn write_down(&mut self, progress: Progress, now: Millis, assigned: usize, message: &str) {
        let Some(diary) = &mut self.diary else { return };
        let description = format!("{progress:?}, {assigned} assigned: {message}");
        if diary.last().is_none_or(|last| !last.ends_with(&description)) {
            diary.push(format!("{:>7}.{:03} s {description}", now / 1000, now % 1000));
        }
    }

    /// Returns whether the target was stopped: rolled back, or held because of doubts at the end.
    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.progress, Some(Progress::RolledBack | Progress::Inconclusive))
    }
}
