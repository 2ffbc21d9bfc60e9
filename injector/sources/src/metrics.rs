//! Metrics of requests to servers. No label holds a name that users choose.

use std::time::Duration;

use nudge_api::OriginKind;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// The kinds of servers.
const KINDS: [OriginKind; 3] = [OriginKind::Git, OriginKind::Oci, OriginKind::Vault];

/// A name and a value.
type Label = (&'static str, &'static str);

/// The outcome of one request to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FetchOutcome {
    /// The content has changed, or was requested for the first time.
    Changed,
    Unchanged,
    Failed,
}

impl FetchOutcome {
    const ALL: [Self; 3] = [Self::Changed, Self::Unchanged, Self::Failed];

    fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Failed => "failed",
        }
    }
}

/// The metrics; cheap to clone.
#[derive(Clone, Debug)]
pub struct FetchMetrics {
    fetches: Family<[Label; 2], Counter>,
    seconds: Family<[Label; 1], Histogram>,
    mirrors: Gauge,
}

impl Default for FetchMetrics {
    fn default() -> Self {
        // From 10 ms to three minutes. Each bucket is twice the one before it.
        let seconds = || Histogram::new((0..15).map(|step| 0.01 * f64::from(1 << step)));
        let metrics = Self {
            fetches: Family::default(),
            seconds: Family::new_with_constructor(seconds),
            mirrors: Gauge::default(),
        };
        // All series exist from the start, because a rate must include the first event.
        for kind in KINDS {
            let kind = ("kind", kind.as_str());
            drop(metrics.seconds.get_or_create(&[kind]));
            for outcome in FetchOutcome::ALL {
                drop(metrics.fetches.get_or_create(&[kind, ("outcome", outcome.as_str())]));
            }
        }
        metrics
    }
}

impl FetchMetrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        let Self { fetches, seconds, mirrors } = self;
        registry.register("source_fetches", "Requests to servers of sources, by outcome", fetches.clone());
        registry.register_with_unit(
            "source_fetch",
            "Time that servers of sources took to give their content, or to say that it has not changed",
            Unit::Seconds,
            seconds.clone(),
        );
        registry.register_with_unit(
            "source_mirrors",
            "Size of the mirrors of git repositories on the disk",
            Unit::Bytes,
            mirrors.clone(),
        );
    }

    /// Counts one request, which took this long.
    pub(crate) fn count(&self, kind: OriginKind, outcome: FetchOutcome, duration: Duration) {
        let kind = ("kind", kind.as_str());
        self.fetches.get_or_create(&[kind, ("outcome", outcome.as_str())]).inc();
        self.seconds.get_or_create(&[kind]).observe(duration.as_secs_f64());
    }

    /// Sets the size of all mirrors.
    pub(crate) fn set_mirrors(&self, bytes: u64) {
        self.mirrors.set(bytes.cast_signed());
    }
}
