//! Figures for Prometheus. No label holds anything that users name, so their number is bounded and nothing leaks.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::HeaderValue;
use nudge_protocol::status::Outcome;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use super::handler::Reply;
use crate::status::StatusPage;

/// How subscribers are told, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// By a signal.
    Signal,
    /// By a webhook.
    Webhook,
}

impl EncodeLabelValue for Channel {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        let text = match self {
            Self::Signal => "signal",
            Self::Webhook => "webhook",
        };
        EncodeLabelValue::encode(&text, encoder)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NotifiedLabel {
    channel: Channel,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

/// What the hub is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HubCall {
    /// What the pod is to run.
    Poll,
    /// To take a report.
    Report,
}

#[derive(Debug, Default)]
struct Figures {
    requests: Family<CodeLabel, Counter>,
    refused: Counter,
    failed: Counter,
    connections: Gauge,
    notified: Family<NotifiedLabel, Counter>,
    switches: Counter,
    age: Gauge<u64, AtomicU64>,
    problems: Gauge,
    polls: Family<OutcomeLabel, Counter>,
    reports: Family<OutcomeLabel, Counter>,
}

/// The agent's figures; cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    figures: Arc<Figures>,
    registry: Arc<Registry>,
}

impl Default for Metrics {
    fn default() -> Self {
        let figures = Figures::default();
        let mut registry = Registry::with_prefix("nudge_agent");
        registry.register("build", "The agent's version", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        registry.register("http_requests", "Requests answered, by status", figures.requests.clone());
        registry.register("connections_refused", "Connections closed because of their number", figures.refused.clone());
        registry.register(
            "connections_failed",
            "Connections that ended with a TLS or HTTP fault",
            figures.failed.clone(),
        );
        registry.register("connections", "Connections now", figures.connections.clone());
        registry.register(
            "notifications",
            "Changes that subscribers were told of, by the way and how it ended",
            figures.notified.clone(),
        );
        registry.register("switches", "Dictionaries served after the first", figures.switches.clone());
        registry.register_with_unit(
            "source_age",
            "Time since the source was last read without fault",
            Unit::Seconds,
            figures.age.clone(),
        );
        registry.register("source_problems", "Configs that can't be served as wanted now", figures.problems.clone());
        registry.register("hub_polls", "Polls of the hub, by how they ended", figures.polls.clone());
        registry.register("hub_reports", "Reports to the hub, by how they ended", figures.reports.clone());
        // All series from the start, so that a rate over the first event is not missed.
        for channel in [Channel::Signal, Channel::Webhook] {
            for outcome in Outcome::FINAL {
                let _ = figures.notified.get_or_create(&NotifiedLabel { channel, outcome: outcome.as_str() });
            }
        }
        Self { figures: Arc::new(figures), registry: Arc::new(registry) }
    }
}

impl Metrics {
    pub(super) fn answered(&self, status: StatusCode) {
        self.figures.requests.get_or_create(&CodeLabel { code: status.as_u16() }).inc();
    }

    pub(super) fn connection_refused(&self) {
        self.figures.refused.inc();
    }

    pub(super) fn connection_failed(&self) {
        self.figures.failed.inc();
    }

    pub(super) fn connections(&self, count: usize) {
        self.figures.connections.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Another dictionary is served.
    pub fn switched(&self) {
        self.figures.switches.inc();
    }

    /// Telling a subscriber has ended.
    pub fn notified(&self, channel: Channel, outcome: Outcome) {
        self.figures.notified.get_or_create(&NotifiedLabel { channel, outcome: outcome.as_str() }).inc();
    }

    /// A call of the hub has ended; `outcome` is a word of a bounded set.
    pub fn asked(&self, call: HubCall, outcome: &'static str) {
        let calls = match call {
            HubCall::Poll => &self.figures.polls,
            HubCall::Report => &self.figures.reports,
        };
        calls.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    pub(super) fn render(&self, status: &StatusPage, now: Instant) -> Reply {
        self.figures.age.set(status.age_seconds(now));
        self.figures.problems.set(i64::try_from(status.problems().len()).unwrap_or(i64::MAX));
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = encode(&mut text, &self.registry);
        let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
        Reply::new(StatusCode::OK, kind, Bytes::from(text))
    }
}
