//! The period of an analysis. Answers from the same data would count twice, so the period is at least the reach of the
//! query.

use std::time::Duration;

use nudge_api::Analysis;

use super::reach::{MAX_REACH, reach};

/// The minimum time between two answers.
const MIN_PERIOD: Duration = Duration::from_secs(5);
/// The maximum time between two answers, unless a query's reach is longer.
const MAX_PERIOD: Duration = Duration::from_hours(1);

/// Returns the time between two answers. The first answer comes equally long after pods began to run the version.
pub fn answer_period(analysis: &Analysis) -> Duration {
    let period = Duration::from_secs(analysis.period_seconds.into()).clamp(MIN_PERIOD, MAX_PERIOD);
    // A query whose reach is unknown is never asked.
    period.max(reach(&analysis.prometheus.query).unwrap_or(MAX_REACH))
}
