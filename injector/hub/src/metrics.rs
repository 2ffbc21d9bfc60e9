//! Metrics of the hub for Prometheus. No label holds a name that users give.

use std::sync::Arc;

use nudge_server::metrics::ConnectionMetrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

macro_rules! results {
    ($(#[$doc:meta])* $type:ident, $family:ident, $count:ident { $($variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum $type { $($variant),+ }

        impl $type {
            const ALL: &[Self] = &[$(Self::$variant),+];

            fn label(self) -> ResultLabel {
                ResultLabel { result: match self { $(Self::$variant => $text),+ } }
            }
        }

        impl Metrics {
            pub(crate) fn $count(&self, result: $type) {
                self.0.$family.get_or_create(&result.label()).inc();
            }
        }
    };
}

results!(
    /// How a review of a token ended.
    ReviewResult, reviews, reviewed { Accepted = "accepted", Refused = "refused", Unavailable = "unavailable" }
);
results!(
    /// How a fetch of a content ended.
    FetchResult, fetches, fetched { Good = "good", Refused = "refused", Unavailable = "unavailable" }
);
results!(
    /// How a poll ended.
    PollResult, polls, polled {
        Changed = "changed",
        Unchanged = "unchanged",
        Superseded = "superseded",
        Interrupted = "interrupted",
        Behind = "behind",
        Draining = "draining",
        Refused = "refused",
        Unavailable = "unavailable",
    }
);
results!(
    /// How writing a pod's condition ended.
    ConditionResult, conditions, condition {
        Written = "written", Changed = "changed", Refused = "refused", Unavailable = "unavailable",
    }
);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Debug, Default)]
struct Families {
    connections: ConnectionMetrics,
    held: Gauge,
    polls: Family<ResultLabel, Counter>,
    reviews: Family<ResultLabel, Counter>,
    entries: Gauge,
    bytes: Gauge,
    fetches: Family<ResultLabel, Counter>,
    reports: Counter,
    blocks: Counter,
    conditions: Family<ResultLabel, Counter>,
    condition_limit: Gauge,
    answer: AnswerTimes,
}

#[derive(Debug)]
struct AnswerTimes(Histogram);

impl Default for AnswerTimes {
    fn default() -> Self {
        // From 0.5 ms in steps of two to 16 s.
        Self(Histogram::new((0..16).map(|step| 0.0005 * f64::from(1 << step))))
    }
}

/// The hub's metrics; cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Metrics(Arc<Families>);

impl Default for Metrics {
    fn default() -> Self {
        let families = Families::default();
        // All series from the start, so that a rate over the first event is not missed.
        show(&families.polls, PollResult::ALL, PollResult::label);
        show(&families.reviews, ReviewResult::ALL, ReviewResult::label);
        show(&families.fetches, FetchResult::ALL, FetchResult::label);
        show(&families.conditions, ConditionResult::ALL, ConditionResult::label);
        Self(Arc::new(families))
    }
}

fn show<R: Copy>(family: &Family<ResultLabel, Counter>, results: &[R], label: impl Fn(R) -> ResultLabel) {
    for result in results {
        drop(family.get_or_create(&label(*result)));
    }
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let families = &self.0;
        let registry = registry.sub_registry_with_prefix("hub");
        families.connections.register(registry);
        registry.register("held_polls", "Polls held now", families.held.clone());
        registry.register("polls", "Polls answered, by how", families.polls.clone());
        registry.register("token_reviews", "Reviews of tokens asked of the API server", families.reviews.clone());
        registry.register("contents", "Versions whose content is kept now", families.entries.clone());
        registry.register_with_unit("contents", "Size of the contents kept now", Unit::Bytes, families.bytes.clone());
        registry.register("fetches", "Contents read from the API server", families.fetches.clone());
        registry.register("blocks", "Contents sent to pods", families.blocks.clone());
        registry.register("reports", "Reports taken from agents", families.reports.clone());
        registry.register("conditions", "Pod conditions written", families.conditions.clone());
        let help = "Pod conditions that may be written at the same time, by how quickly the API server answers";
        registry.register("condition_writes_limit", help, families.condition_limit.clone());
        let help = "Time from the wake-up of a held poll until its reply is handed to the connection";
        registry.register_with_unit("answer", help, Unit::Seconds, families.answer.0.clone());
    }

    /// Returns the metrics of the connections of agents.
    pub(crate) fn connections(&self) -> &ConnectionMetrics {
        &self.0.connections
    }

    /// Counts a held poll until the value is dropped.
    pub(crate) fn held_poll(&self) -> GaugeCount {
        GaugeCount::new(self.0.held.clone())
    }

    pub(crate) fn contents(&self, entries: usize, bytes: usize) {
        self.0.entries.set(i64::try_from(entries).unwrap_or(i64::MAX));
        self.0.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub(crate) fn block_sent(&self) {
        self.0.blocks.inc();
    }

    pub(crate) fn reported(&self) {
        self.0.reports.inc();
    }

    pub(crate) fn condition_limit(&self, limit: usize) {
        self.0.condition_limit.set(i64::try_from(limit).unwrap_or(i64::MAX));
    }

    pub(crate) fn answered_after(&self, seconds: f64) {
        self.0.answer.0.observe(seconds);
    }
}

/// Counts up until it is dropped.
pub(super) struct GaugeCount(Gauge);

impl GaugeCount {
    fn new(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for GaugeCount {
    fn drop(&mut self) {
        self.0.dec();
    }
}
