//! Metrics of the hub for Prometheus. No label holds a name that users give.

use std::sync::Arc;
use std::time::Duration;

use nudge_server::metrics::ConnectionMetrics;
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
            fn label(self) -> Label {
                [("result", match self { $(Self::$variant => $text),+ })]
            }

            /// Creates all series, so that a rate includes the first event.
            fn create_series(families: &Families) {
                for result in [$(Self::$variant),+] {
                    drop(families.$family.get_or_create(&result.label()));
                }
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
    /// The result of a review of a token.
    ReviewResult, reviews, count_review { Accepted = "accepted", Refused = "refused", Unavailable = "unavailable" }
);
results!(
    /// The result of a fetch of a content.
    FetchResult, fetches, count_fetch { Good = "good", Refused = "refused", Unavailable = "unavailable" }
);
results!(
    /// The result of a poll.
    PollResult, polls, count_poll {
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
    /// The result of writing a pod's condition.
    ConditionResult, conditions, count_condition {
        Written = "written", Changed = "changed", Refused = "refused", Unavailable = "unavailable",
    }
);

/// The name and the value of the only label of a family.
type Label = [(&'static str, &'static str); 1];

#[derive(Debug, Default)]
struct Families {
    connections: ConnectionMetrics,
    open_polls: Gauge,
    polls: Family<Label, Counter>,
    reviews: Family<Label, Counter>,
    entries: Gauge,
    bytes: Gauge,
    fetches: Family<Label, Counter>,
    reports: Counter,
    blocks: Counter,
    conditions: Family<Label, Counter>,
    condition_limit: Gauge,
    answer_times: AnswerTimes,
}

#[derive(Debug)]
struct AnswerTimes(Histogram);

impl Default for AnswerTimes {
    fn default() -> Self {
        // The buckets double from 0.5 ms to 16 s.
        Self(Histogram::new((0..16).map(|step| 0.0005 * f64::from(1 << step))))
    }
}

/// The hub's metrics; cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Metrics(Arc<Families>);

impl Default for Metrics {
    fn default() -> Self {
        let families = Families::default();
        PollResult::create_series(&families);
        ReviewResult::create_series(&families);
        FetchResult::create_series(&families);
        ConditionResult::create_series(&families);
        Self(Arc::new(families))
    }
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let families = &self.0;
        let registry = registry.sub_registry_with_prefix("hub");
        families.connections.register(registry);
        registry.register("held_polls", "Polls held now", families.open_polls.clone());
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
        registry.register_with_unit("answer", help, Unit::Seconds, families.answer_times.0.clone());
    }

    /// Returns the metrics of the connections of agents.
    pub(crate) fn connections(&self) -> &ConnectionMetrics {
        &self.0.connections
    }

    /// Counts a held poll until the value is dropped.
    pub(crate) fn count_open_poll(&self) -> GaugeCount {
        self.0.open_polls.inc();
        GaugeCount(self.0.open_polls.clone())
    }

    pub(crate) fn set_contents(&self, entries: usize, bytes: usize) {
        self.0.entries.set(i64::try_from(entries).unwrap_or(i64::MAX));
        self.0.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub(crate) fn count_block(&self) {
        self.0.blocks.inc();
    }

    pub(crate) fn count_report(&self) {
        self.0.reports.inc();
    }

    pub(crate) fn set_condition_limit(&self, limit: usize) {
        self.0.condition_limit.set(i64::try_from(limit).unwrap_or(i64::MAX));
    }

    pub(crate) fn observe_answer_time(&self, time: Duration) {
        self.0.answer_times.0.observe(time.as_secs_f64());
    }
}

/// One count of a gauge, which ends when this is dropped.
pub(super) struct GaugeCount(Gauge);

impl Drop for GaugeCount {
    fn drop(&mut self) {
        self.0.dec();
    }
}
