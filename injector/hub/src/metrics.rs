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
    ($(#[$doc:meta])* $type:ident { $($variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum $type { $($variant),+ }

        impl $type {
            const ALL: &[Self] = &[$(Self::$variant),+];

            fn label(self) -> ResultLabel {
                ResultLabel { result: match self { $(Self::$variant => $text),+ } }
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
        Interrupted = "interrupted",
        Behind = "behind",
        Draining = "draining",
        Refused = "refused",
        Unavailable = "unavailable",
    }
);
results!(
    /// How writing a pod's condition ended.
    ConditionResult { Written = "written", Changed = "changed", Refused = "refused", Unavailable = "unavailable" }
);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Debug)]
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
    answer: Histogram,
}

/// The hub's metrics; cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Metrics(Arc<Families>);

impl Default for Metrics {
    fn default() -> Self {
        // From 0.5 ms in steps of two to 16 s.
        let answer = Histogram::new((0..16).map(|step| 0.0005 * f64::from(1 << step)));
        let families = Families {
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
            condition_limit: Gauge::default(),
            answer,
        };
        // All series from the start, so that a rate over the first event is not missed.
        show(&families.polls, PollResult::ALL, PollResult::label);
        show(&families.reviews, ReviewResult::ALL, ReviewResult::label);
        show(&families.fetches, FetchResult::ALL, FetchResult::label);
        show(&families.conditions, ConditionResult::ALL, ConditionResult::label);
        Self(Arc::new(families))
    }
}

fn show<R: Copy>(family: &Family<ResultLabel, Counter>, all: &[R], label: impl Fn(R) -> ResultLabel) {
    for result in all {
        drop(family.get_or_create(&label(*result)));
    }
}

impl Metrics {
    pub(super) fn register(&self, registry: &mut Registry) {
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
        registry.register_with_unit("answer", help, Unit::Seconds, families.answer.clone());
    }

    /// The connections of agents.
    pub(super) fn connections(&self) -> &ConnectionMetrics {
        &self.0.connections
    }

    /// A poll is held until the value is dropped.
    pub(super) fn held(&self) -> Counted {
        Counted::new(self.0.held.clone())
    }

    pub(super) fn polled(&self, result: PollResult) {
        self.0.polls.get_or_create(&result.label()).inc();
    }

    pub(super) fn reviewed(&self, result: ReviewResult) {
        self.0.reviews.get_or_create(&result.label()).inc();
    }

    pub(super) fn fetched(&self, result: FetchResult) {
        self.0.fetches.get_or_create(&result.label()).inc();
    }

    pub(super) fn contents(&self, entries: usize, bytes: usize) {
        self.0.entries.set(i64::try_from(entries).unwrap_or(i64::MAX));
        self.0.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub(super) fn block_sent(&self) {
        self.0.blocks.inc();
    }

    pub(super) fn reported(&self) {
        self.0.reports.inc();
    }

    pub(super) fn condition(&self, result: ConditionResult) {
        self.0.conditions.get_or_create(&result.label()).inc();
    }

    pub(super) fn condition_limit(&self, limit: usize) {
        self.0.condition_limit.set(i64::try_from(limit).unwrap_or(i64::MAX));
    }

    pub(super) fn answered_after(&self, seconds: f64) {
        self.0.answer.observe(seconds);
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
