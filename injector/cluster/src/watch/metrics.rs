use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The numbers of open, begun and failed watches of a replica, and of its lists.
#[derive(Clone, Debug, Default)]
pub struct WatchMetrics {
    open: Gauge,
    pub(super) watches: Counter,
    pub(super) lists: Counter,
    pub(super) failures: Counter,
}

impl WatchMetrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("watches_open", "Watches that are open", self.open.clone());
        registry.register(
            "watches",
            "Watches begun, also those that continue where the last one ended",
            self.watches.clone(),
        );
        registry.register("watch_lists", "Lists made, each before a watch", self.lists.clone());
        registry.register("watch_failures", "Lists and watches that failed", self.failures.clone());
    }

    /// Counts one more open watch, until the value is dropped.
    pub(super) fn count_open(&self) -> OpenWatch {
        self.open.inc();
        OpenWatch(self.open.clone())
    }
}

pub(super) struct OpenWatch(Gauge);

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.dec();
    }
}
