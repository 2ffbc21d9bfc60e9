//! The memory of a config's `RolloutAnalysis`, which asks about a version on trial or holds a rehearsal.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nudge_api::{RolloutAnalysis, RolloutAnalysisStatus};

/// The object of one config, as it was read or written last.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnalysisMemory {
    pub(crate) object: Option<Arc<RolloutAnalysis>>,
    pub(crate) read_at: Option<Instant>,
    pub(crate) written_at: Option<Instant>,
    /// The time of the last write, if it failed.
    pub(crate) failed_at: Option<Instant>,
    /// The last rehearsal, if no rollout has asked since.
    pub(crate) rehearsal: Option<Rehearsal>,
}

impl AnalysisMemory {
    /// Returns the rehearsal of this round, if it was the last rehearsal.
    pub(crate) fn rehearsal(&self, round: &str) -> Option<Rehearsal> {
        self.rehearsal.clone().filter(|rehearsal| rehearsal.round == round)
    }

    /// Returns the answers that the object has.
    pub(crate) fn answers(&self) -> Option<RolloutAnalysisStatus> {
        self.object.as_ref()?.status.clone()
    }
}

/// A rehearsal that was requested. Nothing waits for it, so the older it is, the longer is the wait until the next
/// read.
#[derive(Clone, Debug)]
pub(crate) struct Rehearsal {
    round: String,
    asked_at: Instant,
    next_read: Instant,
}

impl Rehearsal {
    /// The minimum time between two reads.
    pub(crate) const MIN_INTERVAL: Duration = Duration::from_secs(5);
    /// The maximum time between two reads or writes.
    const MAX_INTERVAL: Duration = Duration::from_mins(5);

    /// Returns a rehearsal that was written now.
    pub(crate) fn new(round: &str, now: Instant) -> Self {
        Self { round: round.to_owned(), asked_at: now, next_read: now + Self::MIN_INTERVAL }
    }

    /// Returns a rehearsal that could not be written now.
    pub(crate) fn unwritten(round: &str, now: Instant) -> Self {
        Self { round: round.to_owned(), asked_at: now, next_read: now + Self::MAX_INTERVAL }
    }

    /// Returns the rehearsal after its answers were read now.
    pub(crate) fn after_read(self, now: Instant) -> Self {
        let age = now.saturating_duration_since(self.asked_at);
        Self { next_read: now + age.clamp(Self::MIN_INTERVAL, Self::MAX_INTERVAL), ..self }
    }

    /// Returns the time until the next read, or the next attempt to write.
    pub(crate) fn wait(&self, now: Instant) -> Duration {
        self.next_read.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_later_each_time() {
        let began = Instant::now();
        let mut rehearsal = Rehearsal::new("a", began);
        let mut reads: Vec<Duration> = Vec::new();
        for _ in 0..9 {
            let last = reads.last().copied().unwrap_or_default();
            let at = last + rehearsal.wait(began + last);
            reads.push(at);
            rehearsal = rehearsal.after_read(began + at);
        }
        let seconds: Vec<u64> = reads.iter().map(Duration::as_secs).collect();
        assert_eq!(seconds, [5, 10, 20, 40, 80, 160, 320, 620, 920]);
        let refused = Rehearsal::unwritten("a", began);
        assert_eq!(refused.wait(began), Duration::from_mins(5));
        let asked = AnalysisMemory { rehearsal: Some(refused), ..AnalysisMemory::default() };
        assert!(asked.rehearsal("a").is_some() && asked.rehearsal("b").is_none());
    }
}
