//! Serves `/healthz`, `/readyz` and `/metrics` by plain HTTP and without a token. No answer has a value, or a name that
//! users chose.

use std::future::pending;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::{Request, Response, StatusCode};
use nudge_server::accept::{Connection, ConnectionError, Handler, Server};
use nudge_server::http::{HttpLimits, serve_http};
use nudge_server::listener::Listen;
use nudge_server::metrics::ConnectionMetrics;
use nudge_server::slots::{Bounds, Slots};
use parking_lot::{Mutex, RwLock};
use prometheus_client::registry::Registry;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

/// The maximum number of connections. Each address has a share of them.
pub(super) const MAX_CONNECTIONS: usize = 64;
/// The maximum age of the counts in an answer.
const MAX_COUNT_AGE: Duration = Duration::from_secs(1);
/// The maximum duration of a connection.
pub(super) const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
const HTTP_LIMITS: HttpLimits =
    HttpLimits { head: Duration::from_secs(5), head_bytes: 16 * 1024, buffer_bytes: 16 * 1024 };

/// A check. Its error is the message of a failure.
pub(super) type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The answers of the endpoints.
pub(super) struct Health {
    /// The check whose failure means that the process should be restarted.
    pub(super) live: Check,
    /// The check whose failure means that agents and webhooks should use another replica.
    pub(super) ready: Check,
    /// The update of the gauges before they are shown.
    pub(super) refresh: Refresh,
    pub(super) registry: RwLock<Registry>,
}

/// The update of the gauges. Its rate is limited, because it takes time for each pod, and anybody may read the metrics
/// at any rate.
pub(super) struct Refresh {
    update: Box<dyn Fn() + Send + Sync>,
    updated_at: Mutex<Option<Instant>>,
}

impl Refresh {
    /// Makes an update from a function that sets the gauges.
    pub(super) fn new(update: impl Fn() + Send + Sync + 'static) -> Self {
        Self { update: Box::new(update), updated_at: Mutex::default() }
    }

    /// Updates the gauges if their last update is too old at `now`. Concurrent callers wait for the update.
    fn run(&self, now: Instant) {
        let mut updated_at = self.updated_at.lock();
        if updated_at.is_none_or(|time| now.saturating_duration_since(time) >= MAX_COUNT_AGE) {
            (self.update)();
            *updated_at = Some(now);
        }
    }
}

impl Health {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let run_check = |check: &Check| match check() {
            Ok(()) => reply(StatusCode::OK, "text/plain", "ok\n".to_owned()),
            Err(message) => reply(StatusCode::SERVICE_UNAVAILABLE, "text/plain", format!("{message}\n")),
        };
        match request.uri().path() {
            "/healthz" => run_check(&self.live),
            "/readyz" => run_check(&self.ready),
            "/metrics" => {
                self.refresh.run(Instant::now());
                let mut text = String::new();
                let registry = self.registry.read();
                match prometheus_client::encoding::text::encode(&mut text, &registry) {
                    Ok(()) => reply(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", text),
                    Err(error) => reply(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", error.to_string()),
                }
            }
            _ => reply(
                StatusCode::NOT_FOUND,
                "text/plain",
                "no such path; use /healthz, /readyz or /metrics\n".to_owned(),
            ),
        }
    }
}

fn reply(status: StatusCode, media_type: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(media_type));
    response
}

/// Serves forever. Each connection lasts for `longest` at most.
pub(super) async fn serve<L>(name: &'static str, listener: L, bounds: Bounds, longest: Duration, health: Arc<Health>)
where
    L: Listen,
    L::Stream: AsyncRead + AsyncWrite + Unpin,
{
    let metrics = ConnectionMetrics::default();
    let server = Server { name, metrics: metrics.clone(), drain: Duration::ZERO, trimmer: None };
    let clients = Clients { slots: Slots::new(bounds, metrics), longest, health };
    server.run(listener, Arc::new(clients), pending()).await;
}

struct Clients {
    slots: Slots,
    longest: Duration,
    health: Arc<Health>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Handler<S> for Clients {
    fn slots(&self, _: &S, _: IpAddr) -> &Slots {
        &self.slots
    }

    async fn serve(&self, connection: Connection<S>) -> Result<(), ConnectionError> {
        let Connection { stream, stop_signal, .. } = connection;
        let answer = async |request| self.health.answer(&request);
        let result = timeout(self.longest, serve_http(stream, &HTTP_LIMITS, stop_signal.wait(), answer)).await;
        result.unwrap_or(Err(ConnectionError::Client))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn pods_are_counted_once_a_second_however_often_metrics_are_requested() {
        let (counts, began) = (Arc::new(AtomicU64::new(0)), Instant::now());
        let counter = Arc::clone(&counts);
        let refresh = Refresh::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        for millis in 0..2500 {
            refresh.run(began + Duration::from_millis(millis));
            assert_eq!(counts.load(Ordering::Relaxed), millis / 1000 + 1);
        }
    }
}
