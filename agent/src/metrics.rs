//! The agent's metrics. No label holds anything that users name, so the number of series is bounded and nothing leaks.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use hyper::StatusCode;
use nudge_protocol::status::Outcome;
use nudge_server::metrics::ConnectionMetrics;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::status::StatusPage;

/// The channel for notifying subscribers, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// A signal to the processes of a container.
    Signal,
    /// An HTTP POST to a subscriber.
    Webhook,
}

impl Channel {
    fn as_str(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::Webhook => "webhook",
        }
    }
}

/// A name and a value.
type Label = (&'static str, &'static str);

fn notified_labels(channel: Channel, outcome: Outcome) -> [Label; 2] {
    [("channel", channel.as_str()), ("outcome", outcome.as_str())]
}

/// A call of the hub, as a label of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HubCall {
    /// A poll for the versions that the pod is assigned.
    Poll,
    /// A report of what the pod runs.
    Report,
}

#[derive(Debug, Default)]
struct Families {
    requests: Family<[(&'static str, u16); 1], Counter>,
    connections: ConnectionMetrics,
    notified: Family<[Label; 2], Counter>,
    switches: Counter,
    age: Gauge<u64, AtomicU64>,
    problems: Gauge,
    polls: Family<[Label; 1], Counter>,
    reports: Family<[Label; 1], Counter>,
}

/// The metrics; cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    families: Arc<Families>,
    registry: Arc<Registry>,
}

impl Default for Metrics {
    fn default() -> Self {
        let families = Families::default();
        let mut registry = Registry::with_prefix("nudge_agent");
        registry.register("build", "The agent's version", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        registry.register("http_requests", "Requests answered, by status", families.requests.clone());
        families.connections.register(&mut registry);
        let (notified, age, problems) = (families.notified.clone(), families.age.clone(), families.problems.clone());
        registry.register("notifications", "Notifications of subscribers, by channel and outcome", notified);
        registry.register("switches", "Dictionaries served after the first", families.switches.clone());
        let age_help = "Time since the source was last read without fault";
        registry.register_with_unit("source_age", age_help, Unit::Seconds, age);
        registry.register("source_problems", "Configs whose assigned version can't be served now", problems);
        registry.register("hub_polls", "Polls of the hub, by how they ended", families.polls.clone());
        registry.register("hub_reports", "Reports to the hub, by how they ended", families.reports.clone());
        // All series exist from the start, so that a rate over the first event is not missed.
        for channel in [Channel::Signal, Channel::Webhook] {
            for outcome in Outcome::FINAL {
                let _ = families.notified.get_or_create(&notified_labels(channel, outcome));
            }
        }
        Self { families: Arc::new(families), registry: Arc::new(registry) }
    }
}

impl Metrics {
    pub(crate) fn count_answer(&self, status: StatusCode) {
        self.families.requests.get_or_create(&[("code", status.as_u16())]).inc();
    }

    /// Returns the metrics of the endpoint's connections.
    pub fn connections(&self) -> &ConnectionMetrics {
        &self.families.connections
    }

    /// Counts a dictionary that replaces a served dictionary.
    pub fn count_switch(&self) {
        self.families.switches.inc();
    }

    /// Counts a notification of a subscriber that has ended.
    pub fn count_notification(&self, channel: Channel, outcome: Outcome) {
        self.families.notified.get_or_create(&notified_labels(channel, outcome)).inc();
    }

    /// Counts a call of the hub that has ended; `outcome` is one of a bounded set.
    pub fn count_call(&self, call: HubCall, outcome: &'static str) {
        let calls = match call {
            HubCall::Poll => &self.families.polls,
            HubCall::Report => &self.families.reports,
        };
        calls.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// Returns the text of `/metrics`, in the format OpenMetrics 1.0.
    pub(crate) fn render(&self, status: &StatusPage, now: Instant) -> String {
        self.families.age.set(status.age_seconds(now));
        self.families.problems.set(i64::try_from(status.problems().len()).unwrap_or(i64::MAX));
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
