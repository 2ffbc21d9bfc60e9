//! The targets that the rules have to reach with their defaults.

use super::cell::Cell;
use super::statistics::{at_least, count, upper_bound};
use super::tally::Tally;
use super::versions::Kind;
use super::weather::Weather;

/// What a cell must achieve.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Target {
    /// The maximum share of good versions that are rolled back.
    FalseAtMost(f64),
    /// The maximum share of good versions that are rolled back, where at least 20 pods do not have the target when the
    /// weather strikes.
    FalseComparedAtMost(f64),
    /// The minimum share of bad versions that are stopped, and the minimum share of these that are stopped in the first
    /// step.
    Stopped(f64, Option<f64>),
    /// The shares of versions that are stopped, and rolled back.
    RolledBack(f64, f64),
}

fn demanded(cell: &Cell) -> Option<Target> {
    let Cell { weather, version, fleet, .. } = *cell;
    if !version.is_bad() {
        return if weather.is_outage() {
            (fleet >= 40).then_some(Target::FalseComparedAtMost(0.05))
        } else {
            Some(Target::FalseAtMost(0.001))
        };
    }
    let slow = is_slow(version);
    let harmed = version.harmed(fleet);
    match version.percent {
        // Five minutes are longer than a rollout, unless it bakes for longer.
        _ if slow && cell.bake_seconds.is_none() => None,
        2 => (fleet >= 500).then_some(Target::RolledBack(0.99, 0.9)),
        percent => {
            let first = if fleet >= 500 { 0.95 } else { 0.99 };
            let by_probes = matches!(version.kind, Kind::Unready | Kind::Crash | Kind::Refused);
            (harmed >= 2 || (percent == 100 && !slow))
                .then_some(Target::Stopped(0.999, (percent == 100 && by_probes).then_some(first)))
        }
    }
}

/// It harms after minutes.
fn is_slow(version: super::versions::Target) -> bool {
    matches!(version.kind, Kind::Leak(after) if after > 60_000)
}

/// The target of a cell, and whether it is met.
pub(crate) fn target(cell: &Cell, tally: &Tally) -> Option<(String, bool)> {
    let share = |part: u64, all: u64| if all == 0 { 1.0 } else { count(part) / count(all) };
    Some(match demanded(cell)? {
        Target::FalseAtMost(most) => (format!("back <= {most}"), upper_bound(tally.rolled_back, tally.runs) <= most),
        Target::FalseComparedAtMost(most) => {
            (format!("compared <= {most}"), upper_bound(tally.compared_rolled_back, tally.compared) <= most)
        }
        Target::Stopped(least, first) => {
            let stopped = share(tally.stopped(), tally.runs) >= least;
            let early = first.is_none_or(|first| share(tally.first_step_only, tally.stopped()) >= first);
            let first = first.map_or(String::new(), |first| format!("; first >= {first}"));
            (format!("stop >= {least}{first}"), stopped && early)
        }
        Target::RolledBack(stopped, back) => {
            let met = share(tally.stopped(), tally.runs) >= stopped && share(tally.rolled_back, tally.runs) >= back;
            (format!("stop >= {stopped}; back >= {back}"), met)
        }
    })
}

/// How many rollouts of a cell are made where a few seconds have to be enough: none of large fleets, of slow versions
/// and of a day's hold.
pub(crate) fn few_runs(cell: &Cell) -> Option<u64> {
    let is_quick = matches!(cell.fleet, 3..=40) && cell.weather != Weather::Hold && !is_slow(cell.version);
    (is_quick && demanded(cell).is_some()).then(|| (480 / cell.fleet as u64).min(60))
}

/// Whether the target is missed by more than chance explains: at least this number of misses has a probability below
/// the limit.
pub(crate) fn is_missed(cell: &Cell, tally: &Tally) -> bool {
    const CHANCE: f64 = 0.001;
    let too_many = |misses: u64, runs: u64, allowed: f64| at_least(misses, runs, allowed) < CHANCE;
    match demanded(cell) {
        None => false,
        Some(Target::FalseAtMost(most)) => too_many(tally.rolled_back, tally.runs, most),
        Some(Target::FalseComparedAtMost(most)) => too_many(tally.compared_rolled_back, tally.compared, most),
        Some(Target::Stopped(least, first)) => {
            too_many(tally.runs - tally.stopped(), tally.runs, 1.0 - least)
                || first.is_some_and(|first| {
                    too_many(tally.stopped() - tally.first_step_only, tally.stopped(), 1.0 - first)
                })
        }
        Some(Target::RolledBack(stopped, back)) => {
            too_many(tally.runs - tally.stopped(), tally.runs, 1.0 - stopped)
                || too_many(tally.runs - tally.rolled_back, tally.runs, 1.0 - back)
        }
    }
}
