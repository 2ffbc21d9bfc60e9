//! Metrics of the repair loop, without labels: the names of namespaces have no bound.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The metrics; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct RepairMetrics {
    pub(super) without: Gauge,
    pub(super) scans: Counter,
    pub(super) evicted: Counter,
    pub(super) failures: Counter,
}

impl RepairMetrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("pods_without_agent", "Pods that opt in but have no agent", self.without.clone());
        registry.register(
            "repair_scans",
            "Scans of all enabled namespaces for pods without an agent",
            self.scans.clone(),
        );
        registry.register("repair_evictions", "Pods evicted because they had no agent", self.evicted.clone());
        registry.register("repair_failures", "Namespaces that could not be scanned", self.failures.clone());
    }
}
