//! What the rules have to reach with their defaults.

use super::cell::Cell;
use super::statistics::{count, upper_bound};
use super::tally::Tally;
use super::versions::Kind;
use super::weather::Weather;

/// What is demanded of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Target {
    /// Good versions are rolled back at most so often.
    FalseAtMost(f64),
    /// The same, where at least 20 pods do not have the target when the weather strikes.
    FalseComparedAtMost(f64),
    /// Bad ones are stopped at least so often; and in at least this share of these, in the first step.
    Stopped(f64, Option<f64>),
    /// So many are stopped, and so many rolled back.
    RolledBack(f64, f64),
}

fn demanded(cell: &Cell) -> Option<Target> {
    let Cell { weather, version, fleet, .. } = *cell;
    if !version.is_bad() {
        return match weather {
            Weather::Outage(_) | Weather::CrashingOutage(_) => {
                (fleet >= 40).then_some(Target::FalseComparedAtMost(0.05))
            }
            _ => Some(Target::FalseAtMost(0.001)),
        };
    }
    let slow = matches!(version.kind, Kind::Leak(after) if after > 60_000);
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

/// Cells that a few seconds are enough for.
pub(crate) fn is_small(cell: &Cell) -> bool {
    cell.fleet <= 40 && cell.weather != Weather::Pause
}

/// Whether the target is missed by more than chance explains in a few hundred runs.
pub(crate) fn is_missed_by_far(cell: &Cell, tally: &Tally) -> bool {
    let most = |chance: f64, runs: u64| {
        let expected = count(runs) * chance;
        expected + 4.0 * expected.sqrt() + 2.0
    };
    match demanded(cell) {
        None => false,
        Some(Target::FalseAtMost(chance)) => count(tally.rolled_back) > most(chance, tally.runs),
        Some(Target::FalseComparedAtMost(chance)) => count(tally.compared_rolled_back) > most(chance, tally.compared),
        Some(Target::Stopped(least, first)) => {
            let late = count(tally.stopped() - tally.first_step_only);
            count(tally.runs - tally.stopped()) > most(1.0 - least, tally.runs)
                || first.is_some_and(|first| late > most(1.0 - first, tally.stopped()))
        }
        Some(Target::RolledBack(least, _)) => count(tally.runs - tally.stopped()) > most(1.0 - least, tally.runs),
    }
}
