//! Metrics of enabled namespaces, counted when `/metrics` is read. No label holds a namespace.

use nudge_cluster::index::{Index, NamespaceCounts};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::config_metrics::Label;

#[derive(Clone, Debug, Default)]
pub(super) struct NamespaceMetrics {
    states: Family<Label, Gauge>,
    left_out: Family<Label, Gauge>,
}

impl NamespaceMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Enabled namespaces by state: complete, incomplete (not listed yet), or forbidden (Nudge may not read them)";
        registry.register("namespaces", help, self.states.clone());
        let help = "Objects that are left out because their namespace has too many, by kind; at most 10,000 of a namespace are counted";
        registry.register("objects_left_out", help, self.left_out.clone());
    }

    pub(super) fn update(&self, index: &Index) {
        let NamespaceCounts { complete, incomplete, forbidden } = index.count_namespaces();
        for (state, count) in [("complete", complete), ("incomplete", incomplete), ("forbidden", forbidden)] {
            self.states.get_or_create(&[("state", state)]).set(gauge(count));
        }
        for (kind, count) in index.count_left_out() {
            self.left_out.get_or_create(&[("kind", kind.as_str())]).set(gauge(count));
        }
    }
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
