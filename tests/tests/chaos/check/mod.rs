//! Judges a history: pure functions over plain data.
//!
//! Each outcome is one that was to be expected: of an application that settled, a rollout that had its time, a pod that
//! was read from beginning to end. It is as it should be, or a violation, or can't be decided.

mod assigned;
pub(crate) mod belongs;
mod notified;
mod placed;
pub(crate) mod planted;
mod rollouts;
mod secrets;
mod story;
mod tests;
mod whole;

use std::fmt;

use self::story::Story;
use crate::history::{History, Time};

/// A property that must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Property {
    /// No application sees a mix of two versions.
    Whole,
    /// No application sees a version that was not assigned to it, or more of a deleted config than it had.
    Assigned,
    /// No application goes back in revision.
    Order,
    /// Each application ends on the version that its pod is assigned.
    Placed,
    /// Each application was notified after its last change.
    Notified,
    /// No application is notified again of the same dictionary, unless it or its agent was killed in between.
    Once,
    /// Each step is watched for its time, and so are all pods at the end.
    Dwell,
    /// While a config is on hold no version of it begins or continues.
    Hold,
    /// A bad version fails, and never becomes current.
    Bad,
    /// A good version becomes current in time.
    Good,
    /// No value of a Secret is found where none may be.
    Secret,
}

/// A violation, or something that can't be decided.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) property: Property,
    pub(crate) at: Time,
    pub(crate) what: String,
}

/// The result of judging a history.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) violations: Vec<Finding>,
    pub(crate) undecided: Vec<Finding>,
    pub(crate) decided: usize,
    /// The number of versions that another one replaced before their time was over, so that their end is not judged.
    pub(crate) overtaken: usize,
}

/// The number of outcomes of which one may be undecided.
const OUTCOMES_PER_UNDECIDED: usize = 20;
/// The maximum number of findings of each kind that are printed.
const MAX_PRINTED_FINDINGS: usize = 20;

impl Report {
    /// Judges a history.
    pub(crate) fn of(history: &History) -> Self {
        let story = Story::of(history);
        let mut report = Self::default();
        for property in [whole::check, assigned::check, placed::check, notified::check, rollouts::check, secrets::check]
        {
            property(&story, &mut report);
        }
        report.violations.sort_by_key(|finding| finding.at);
        report
    }

    /// Returns whether enough could be decided.
    pub(crate) fn is_decided(&self) -> bool {
        self.decided > 0 && self.undecided.len() * OUTCOMES_PER_UNDECIDED <= self.decided + self.undecided.len()
    }

    /// Records an outcome, with what is wrong with it, if anything is.
    fn outcome(&mut self, property: Property, wrong: Option<(Time, String)>) {
        self.decided += 1;
        self.violations.extend(wrong.map(|(at, what)| Finding { property, at, what }));
    }

    fn undecided(&mut self, property: Property, at: Time, what: String) {
        self.undecided.push(Finding { property, at, what });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcomes = self.decided + self.undecided.len();
        let (bad, open) = (self.violations.len(), self.undecided.len());
        let overtaken = self.overtaken;
        writeln!(out, "{outcomes} outcomes: {bad} violations, {open} can't be decided; {overtaken} were overtaken")?;
        for (word, findings) in [("VIOLATION", &self.violations), ("undecided", &self.undecided)] {
            for Finding { property, at, what } in findings.iter().take(MAX_PRINTED_FINDINGS) {
                writeln!(out, "  {word} {property:?} at {at} ms: {what}")?;
            }
        }
        Ok(())
    }
}
