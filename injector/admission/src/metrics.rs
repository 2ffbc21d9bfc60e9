//! The metrics of admission. Labels are paths and outcomes, so their number is bounded.

use std::time::Duration;

use nudge_server::metrics::ConnectionMetrics;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReviewOutcome {
    Allowed,
    Denied,
    /// The review could not be parsed.
    Malformed,
    /// The review failed; the failure policy decides.
    Error,
}

impl ReviewOutcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Malformed => "malformed",
            Self::Error => "error",
        }
    }
}

/// The bounds of the buckets, in seconds.
const BUCKETS: [f64; 15] =
    [0.000_25, 0.000_5, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0];

/// A name and a value.
type Label = (&'static str, &'static str);

/// The metrics of admission, which are cheap to clone.
#[derive(Clone, Debug)]
pub struct AdmissionMetrics {
    reviews: Family<[Label; 2], Counter>,
    seconds: Family<[Label; 1], Histogram>,
    pub(super) connections: ConnectionMetrics,
}

impl Default for AdmissionMetrics {
    fn default() -> Self {
        Self {
            reviews: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            connections: ConnectionMetrics::default(),
        }
    }
}

impl AdmissionMetrics {
    /// Registers the metrics under names that begin with `admission_`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("admission");
        registry.register("reviews", "Reviews answered, by path and outcome", self.reviews.clone());
        registry.register_with_unit("duration", "Time to answer a review", Unit::Seconds, self.seconds.clone());
        self.connections.register(registry);
    }

    pub(super) fn observe_review(&self, path: &'static str, outcome: ReviewOutcome, duration: Duration) {
        self.reviews.get_or_create(&[("path", path), ("outcome", outcome.as_str())]).inc();
        self.seconds.get_or_create(&[("path", path)]).observe(duration.as_secs_f64());
    }
}
