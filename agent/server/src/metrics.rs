//! The metrics of a listener.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The connections of one listener; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ConnectionMetrics {
    /// The connections that have a slot now.
    pub open: Gauge,
    /// The connections that got a slot.
    pub accepted: Counter,
    /// The connections that were closed because there were too many.
    pub refused: Counter,
    /// The connections that ended with an error.
    pub failed: Counter,
}

impl ConnectionMetrics {
    /// Registers the metrics as `connections`, `connections_accepted`, `connections_refused` and `connections_failed`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("connections", "Open connections", self.open.clone());
        registry.register("connections_accepted", "Connections that got a slot", self.accepted.clone());
        let refused = self.refused.clone();
        registry.register("connections_refused", "Connections closed because there were too many", refused);
        registry.register("connections_failed", "Connections that ended with a TLS or HTTP fault", self.failed.clone());
    }
}
