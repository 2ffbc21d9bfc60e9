//! The outcomes of all rollouts of a cell.

use super::cell::Cell;
use super::judge::{DAY, Millis, Progress};
use super::outcome::Outcome;
use super::statistics::quantile;
use super::versions::Kind;
use super::weather::Weather;

/// The number of pods without the target that show what the weather is like.
const MIN_COMPARED_RUNS: usize = 20;

/// The outcomes of all rollouts of a cell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) runs: u64,
    pub(crate) rolled_back: u64,
    /// Of the runs: the weather struck while at least 20 pods did not have the target. Of these: rolled back.
    pub(crate) compared: u64,
    pub(crate) compared_rolled_back: u64,
    pub(crate) inconclusive: u64,
    pub(crate) held: u64,
    pub(crate) passed: u64,
    /// Still moving at the end.
    pub(crate) unfinished: u64,
    /// Inconclusive at any time.
    pub(crate) ever_inconclusive: u64,
    /// Stopped when only the first step had been assigned.
    pub(crate) first_step_only: u64,
    pub(crate) looks: u64,
    exposed: Vec<u64>,
    stopped_after: Vec<u64>,
    /// The longest stall beyond the usual time and the duration of the event.
    pub(crate) longest_stall: Millis,
    /// The first good version that did not pass, or bad one that did: its number, and what was said last.
    example: Option<(u64, String)>,
}

impl Tally {
    pub(crate) fn add(&mut self, cell: &Cell, number: u64, outcome: &Outcome) {
        // What crashes at starts can't be found without any.
        if cell.version.kind == Kind::CrashAtStart && outcome.born_harmed < 2 {
            return;
        }
        self.runs += 1;
        self.looks += outcome.looks;
        let of = match outcome.progress.unwrap_or(Progress::Moving) {
            Progress::RolledBack => &mut self.rolled_back,
            Progress::Inconclusive => &mut self.inconclusive,
            Progress::Held => &mut self.held,
            Progress::Passed => &mut self.passed,
            Progress::Moving => &mut self.unfinished,
        };
        *of += 1;
        if outcome.unassigned.is_some_and(|unassigned| unassigned >= MIN_COMPARED_RUNS) {
            self.compared += 1;
            self.compared_rolled_back += u64::from(outcome.progress == Some(Progress::RolledBack));
        }
        self.ever_inconclusive += u64::from(outcome.was_inconclusive);
        if outcome.is_stopped() {
            self.first_step_only += u64::from(outcome.steps == 1);
            self.exposed.push(outcome.exposed as u64);
            self.stopped_after.push(outcome.since.saturating_sub(outcome.first_assigned));
        }
        let surprises = (outcome.progress == Some(Progress::Passed)) == cell.version.is_bad();
        if surprises && self.example.as_ref().is_none_or(|(first, _)| number < *first) {
            self.example = Some((number, outcome.message.clone()));
        }
        if outcome.progress != Some(Progress::RolledBack) && !cell.version.is_bad() {
            let event = if cell.weather == Weather::Hold { DAY } else { 0 };
            let stall = outcome.duration.saturating_sub(cell.usual() + event + outcome.unwell);
            self.longest_stall = self.longest_stall.max(stall);
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.runs += other.runs;
        self.rolled_back += other.rolled_back;
        self.compared += other.compared;
        self.compared_rolled_back += other.compared_rolled_back;
        self.inconclusive += other.inconclusive;
        self.held += other.held;
        self.passed += other.passed;
        self.unfinished += other.unfinished;
        self.ever_inconclusive += other.ever_inconclusive;
        self.first_step_only += other.first_step_only;
        self.looks += other.looks;
        self.exposed.extend(other.exposed);
        self.stopped_after.extend(other.stopped_after);
        self.longest_stall = self.longest_stall.max(other.longest_stall);
        self.example = self.example.take().into_iter().chain(other.example).min();
        self.exposed.sort_unstable();
        self.stopped_after.sort_unstable();
    }

    pub(crate) fn stopped(&self) -> u64 {
        self.rolled_back + self.inconclusive
    }

    /// Returns a rollout that did not end as it should.
    pub(crate) fn example(&self) -> Option<&(u64, String)> {
        self.example.as_ref()
    }

    /// Returns the quantile of the number of pods that had the target when it was stopped.
    pub(crate) fn exposed(&self, thousandths: usize) -> u64 {
        quantile(&self.exposed, thousandths)
    }

    /// Returns the quantile of the time from the first assignment until the stop.
    pub(crate) fn stopped_after(&self, thousandths: usize) -> Millis {
        quantile(&self.stopped_after, thousandths)
    }
}
