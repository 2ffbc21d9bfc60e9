//! Rows that the measures of one config and of many share.

use std::time::Duration;

use super::counters::Spent;
use crate::report::Report;
use crate::row::{Row, Target, Unit};

/// What a step may take: the floor multiplied by the first, and the second added.
pub(super) const TIMES: f64 = 1.3;
pub(super) const MORE: f64 = 2.0;

/// Returns the time in seconds, which is infinite if its end was never seen.
pub(super) fn seconds(time: Option<Duration>) -> f64 {
    time.map_or(f64::INFINITY, |time| time.as_secs_f64())
}

/// Returns a row with a time and its floor.
pub(super) fn beside_floor(what: String, time: Option<Duration>, floor: Duration) -> Row {
    let row = Row::new(what, Unit::Seconds, seconds(time)).beside("floor", floor.as_secs_f64());
    row.target(Target::PeerTimes(TIMES, MORE))
}

/// What was spent.
pub(super) fn spent(report: &mut Report, title: &str, spent: &Spent) {
    let mut row = |what: &str, unit, value| report.row(Row::new(format!("{title}: {what}"), unit, value));
    row("polls answered", Unit::Count, spent.of_hub("nudge_hub_polls_total"));
    row("reports taken", Unit::Count, spent.of_hub("nudge_hub_reports_total"));
    row("connections of agents", Unit::Count, spent.of_hub("nudge_hub_connections_accepted_total"));
    row("conditions written", Unit::Count, spent.of_hub("nudge_hub_conditions_total"));
    row("writes to the API server", Unit::Count, spent.all_writes());
    for (name, seconds) in &spent.processor_seconds {
        row(&format!("processor, {name}"), Unit::Seconds, *seconds);
    }
}
