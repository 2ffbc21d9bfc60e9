//! What was asked about a version on trial, or in a rehearsal.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nudge_api::RolloutAnalysis;

/// What is known of the object of one config.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    pub(super) object: Option<Arc<RolloutAnalysis>>,
    pub(super) read: Option<Instant>,
    pub(super) written: Option<Instant>,
    /// When it could not be written; absent since it could.
    pub(super) failed: Option<Instant>,
    /// The last rehearsal, if no rollout has asked since.
    pub(super) rehearsal: Option<Rehearsal>,
}

impl Asked {
    /// The rehearsal of this round, if it was the last one.
    pub(super) fn rehearsal(&self, round: &str) -> Option<Rehearsal> {
        self.rehearsal.clone().filter(|rehearsal| rehearsal.round == round)
    }
}

/// A rehearsal that was asked for. Nothing waits for it, so it rests: the longer, the longer ago it was asked for.
#[derive(Clone, Debug)]
pub(super) struct Rehearsal {
    round: String,
    asked: Instant,
    until: Instant,
}

impl Rehearsal {
    /// How long it rests at least.
    pub(super) const FIRST: Duration = Duration::from_secs(5);
    /// How long it rests at most.
    const LONGEST: Duration = Duration::from_mins(5);

    /// One that was written now.
    pub(super) fn asked(round: &str, now: Instant) -> Self {
        Self { round: round.to_owned(), asked: now, until: now + Self::FIRST }
    }

    /// One that could not be written now.
    pub(super) fn refused(round: &str, now: Instant) -> Self {
        Self { round: round.to_owned(), asked: now, until: now + Self::LONGEST }
    }

    /// The same, after its answers were read now.
    pub(super) fn read(self, now: Instant) -> Self {
        let age = now.saturating_duration_since(self.asked);
        Self { until: now + age.clamp(Self::FIRST, Self::LONGEST), ..self }
    }

    /// How long it rests still.
    pub(super) fn rests(&self, now: Instant) -> Duration {
        self.until.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_later_each_time() {
        let began = Instant::now();
        let mut rehearsal = Rehearsal::asked("a", began);
        let mut reads: Vec<Duration> = Vec::new();
        for _ in 0..9 {
            let last = reads.last().copied().unwrap_or_default();
            let at = last + rehearsal.rests(began + last);
            reads.push(at);
            rehearsal = rehearsal.read(began + at);
        }
        let seconds: Vec<u64> = reads.iter().map(Duration::as_secs).collect();
        assert_eq!(seconds, [5, 10, 20, 40, 80, 160, 320, 620, 920]);
        let refused = Rehearsal::refused("a", began);
        assert_eq!(refused.rests(began), Duration::from_mins(5));
        let asked = Asked { rehearsal: Some(refused), ..Asked::default() };
        assert!(asked.rehearsal("a").is_some() && asked.rehearsal("b").is_none());
    }
}
