//! No Secret's value stands in a log, an Event, a status or a metric.

use super::story::Story;
use super::{Property, Report};

pub(super) fn check(story: &Story<'_>, report: &mut Report) {
    for &(at, place) in &story.leaked {
        report.outcome(Property::Secret, Some((at, format!("a value of a Secret stands in {place}"))));
    }
    if story.leaked.is_empty() {
        report.outcome(Property::Secret, None);
    }
}
