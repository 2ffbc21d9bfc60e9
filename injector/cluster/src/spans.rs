//! Tracing spans, whose fields each log line inside them carries.

use nudge_core::keys::ConfigKey;
use tracing::{Span, info_span};

/// The span of one reconcile of a config.
pub fn reconcile(config: &ConfigKey) -> Span {
    info_span!("reconcile", namespace = config.namespace, config = %config.name)
}
