//! Metrics of the hub for Prometheus. No label holds a name that users give.

use std::fmt;
use std::hash::Hash;

use nudge_server::metrics::ConnectionMetrics;
use prometheus_client::encoding::{EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

macro_rules! results {
    ($(#[$doc:meta])* $type:ident { $($variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(super) enum $type { $($variant),+ }

        impl $type {
            const ALL: &[Self] = &[$(Self::$variant),+];
        }

        impl EncodeLabelSet for $type {
            fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
                [("result", match self { $(Self::$variant => $text),+ })].encode(encoder)
            }
        }
    };
}

results!(
    /// How a review of a token ended.
    ReviewResult { Accepted = "accepted", Refused = "refused", Unavailable = "unavailable" }
);
results!(
    /// How a fetch of a content ended.
    FetchResult { Good = "good", Refused = "refused", Unavailable = "unavailable" }
);
results!(
    /// How a poll ended.
    PollResult {
        Changed = "changed",
        Unchanged = "unchanged",
        Superseded = "superseded",
        Behind = "behind",
        Draining = "draining",
        Refused = "refused",
        Unavailable = "unavailable",
        Gone = "gone",
    }
);
results!(
    /// How writing a pod's condition ended.
    ConditionResult { Written = "written", Changed = "changed", Refused = "refused", Unavailable = "unavailable" }
);

/// The hub's metrics; cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    pub(super) connections: ConnectionMetrics,
    held: Gauge,
    pub(super) polls: Family<PollResult, Counter>,
    pub(super) reviews: Family<ReviewResult, Counter>,
    entries: Gauge,
    bytes: Gauge,
    pub(super) fetches: Family<FetchResult, Counter>,
    pub(super) reports: Counter,
    pub(super) blocks: Counter,
    pub(super) conditions: Family<ConditionResult, Counter>,
    pub(super) answer: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        // From 0.5 ms in steps of two to 16 s.
        let answer = Histogram::new((0..16).map(|step| 0.0005 * f64::from(1 << step)));
        let metrics = Self {
            connections: ConnectionMetrics::default(),
            held: Gauge::default(),
            polls: Family::default(),
            reviews: Family::default(),
            entries: Gauge::default(),
            bytes: Gauge::default(),
            fetches: Family::default(),
            reports: Counter::default(),
            blocks: Counter::default(),
            conditions: Family::default(),
            answer,
        };
        // All series from the start, so that a rate over the first event is not missed.
        show(&metrics.polls, PollResult::ALL);
        show(&metrics.reviews, ReviewResult::ALL);
        show(&metrics.fetches, FetchResult::ALL);
        show(&metrics.conditions, ConditionResult::ALL);
        metrics
    }
}

fn show<R: Clone + Eq + Hash>(family: &Family<R, Counter>, all: &[R]) {
    for result in all {
        drop(family.get_or_create(result));
    }
}

impl Metrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("hub");
        self.connections.register(registry);
        registry.register("held_polls", "Polls held now", self.held.clone());
        registry.register("polls", "Polls answered, by how", self.polls.clone());
        registry.register("token_reviews", "Reviews of tokens asked of the API server", self.reviews.clone());
        registry.register("contents", "Versions whose content is kept now", self.entries.clone());
        registry.register_with_unit("contents", "Size of the contents kept now", Unit::Bytes, self.bytes.clone());
        registry.register("fetches", "Contents read from the API server", self.fetches.clone());
        registry.register("blocks", "Contents sent to pods", self.blocks.clone());
        registry.register("reports", "Reports taken from agents", self.reports.clone());
        registry.register("conditions", "Pod conditions written", self.conditions.clone());
        let help = "Time from the wake-up of a held poll until its reply is handed to the connection";
        registry.register_with_unit("answer", help, Unit::Seconds, self.answer.clone());
    }

    /// A poll is held until the value is dropped.
    pub(super) fn held(&self) -> Counted {
        Counted::new(self.held.clone())
    }

    pub(super) fn contents(&self, entries: usize, bytes: usize) {
        self.entries.set(i64::try_from(entries).unwrap_or(i64::MAX));
        self.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}

/// Counts up while it lives.
pub(super) struct Counted(Gauge);

impl Counted {
    fn new(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_result_has_a_series_from_the_start() {
        let (metrics, mut registry, mut text) = (Metrics::default(), Registry::default(), String::new());
        metrics.register(&mut registry);
        metrics.polls.get_or_create(&PollResult::Gone).inc();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "hub_polls_total{result=\"gone\"} 1",
            "hub_polls_total{result=\"unchanged\"} 0",
            "hub_token_reviews_total{result=\"accepted\"} 0",
            "hub_fetches_total{result=\"good\"} 0",
            "hub_conditions_total{result=\"written\"} 0",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
    }
}
