//! Tracing spans, whose fields each log line inside them carries.

use nudge_core::keys::ConfigKey;
use tracing::{Span, error_span};

/// Returns the span of one reconcile of a config, which is enabled at every log level.
pub fn reconcile_span(config: &ConfigKey) -> Span {
    error_span!("reconcile", namespace = config.namespace, config = %config.name)
}
