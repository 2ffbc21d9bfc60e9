//! Figures of the repair loop, without labels: names of namespaces are users' and without bound.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub struct RepairMetrics {
    pub(super) without: Gauge,
    pub(super) looks: Counter,
    pub(super) evicted: Counter,
    pub(super) failures: Counter,
}

impl RepairMetrics {
    /// Registers the figures.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("pods_without_agent", "Pods that opt in but have no agent", self.without.clone());
        registry.register("repair_looks", "Looks for pods without an agent, at all namespaces", self.looks.clone());
        registry.register("repair_evictions", "Pods evicted because they had no agent", self.evicted.clone());
        registry.register("repair_failures", "Namespaces that could not be looked at", self.failures.clone());
    }
}
