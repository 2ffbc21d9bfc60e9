//! How often an analysis is asked for. Answers of the same data would count twice, so it is not more often than its query looks back.

use std::time::Duration;

use nudge_api::Analysis;

use super::reach::{LONGEST_REACH, reach};

/// The shortest period.
const MIN_PERIOD: Duration = Duration::from_secs(5);
/// The longest period.
const MAX_PERIOD: Duration = Duration::from_hours(1);

/// The time between two answers, and from the moment that pods run the version to the first.
pub fn period(analysis: &Analysis) -> Duration {
    let period = Duration::from_secs(analysis.period_seconds.into()).clamp(MIN_PERIOD, MAX_PERIOD);
    // A query whose reach is not known is not asked.
    period.max(reach(&analysis.prometheus.query).unwrap_or(LONGEST_REACH))
}
