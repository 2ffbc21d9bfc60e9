//! The sources of a config in its report.

use nudge_api::{ConditionType, ConfigSource, find_condition};
use serde::Serialize;

/// A source of the config, and whether its newest content is in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SourceReport {
    source: String,
    ready: bool,
    reason: String,
    message: String,
}

impl SourceReport {
    pub(crate) fn new(source: &ConfigSource) -> Self {
        let status = source.status.as_ref();
        let ready = status.and_then(|status| find_condition(&status.conditions, ConditionType::Ready));
        Self {
            source: source.metadata.name.clone().unwrap_or_default(),
            ready: ready.is_some_and(|ready| ready.status == "True"),
            reason: ready.map(|ready| ready.reason.clone()).unwrap_or_default(),
            message: ready.map(|ready| ready.message.clone()).unwrap_or_default(),
        }
    }

    pub(super) fn text(&self) -> String {
        let Self { source, reason, message, .. } = self;
        if self.ready { source.clone() } else { format!("{source}, {reason}: {message}") }
    }
}
