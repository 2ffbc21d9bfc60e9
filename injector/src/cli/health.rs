//! `/healthz`, `/readyz` and `/metrics`, by plain HTTP and without a token: they never hold a name that users chose, or a value.

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
use nudge_server::metrics::ConnectionMetrics;
use nudge_server::slots::{Bounds, Slots};
use parking_lot::{Mutex, RwLock};
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Most connections, with a share for each address.
const CONNECTIONS: usize = 64;
/// How long a count is shown.
const FRESH: Duration = Duration::from_secs(1);
/// How long one may last.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
const HTTP: HttpLimits = HttpLimits { head: Duration::from_secs(5), head_bytes: 16 * 1024, buffer_bytes: 16 * 1024 };

/// A check with a message if it fails.
pub(super) type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// What the endpoints answer.
pub(super) struct Health {
    /// The process should be restarted if this fails.
    pub(super) live: Check,
    /// Agents and webhooks should use another replica if this fails.
    pub(super) ready: Check,
    /// Updates gauges before they are shown.
    pub(super) refresh: Refresh,
    /// The metrics.
    pub(super) registry: RwLock<Registry>,
}

/// Counts what gauges show. That takes time for each pod, and anybody may ask as often as they like.
pub(super) struct Refresh {
    count: Box<dyn Fn() + Send + Sync>,
    counted: Mutex<Option<Instant>>,
}

impl Refresh {
    /// `count` sets the gauges.
    pub(super) fn new(count: impl Fn() + Send + Sync + 'static) -> Self {
        Self { count: Box::new(count), counted: Mutex::default() }
    }

    /// Counts again if the last count is too old at `now`. Other callers wait for the count.
    fn at(&self, now: Instant) {
        let mut counted = self.counted.lock();
        if counted.is_none_or(|counted| now.saturating_duration_since(counted) >= FRESH) {
            (self.count)();
            *counted = Some(now);
        }
    }
}

impl Health {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let checked = |check: &Check| match check() {
            Ok(()) => reply(StatusCode::OK, "text/plain", "ok\n".to_owned()),
            Err(message) => reply(StatusCode::SERVICE_UNAVAILABLE, "text/plain", format!("{message}\n")),
        };
        match request.uri().path() {
            "/healthz" => checked(&self.live),
            "/readyz" => checked(&self.ready),
            "/metrics" => {
                self.refresh.at(Instant::now());
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

fn reply(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    response
}

/// Serves forever.
pub(super) async fn serve(listener: TcpListener, health: Arc<Health>) {
    let metrics = ConnectionMetrics::default();
    let server = Server { name: "health", metrics: metrics.clone(), drain: Duration::ZERO, trimmer: None };
    let clients = Clients { slots: Slots::new(Bounds::shared(CONNECTIONS), metrics), health };
    server.run(listener, Arc::new(clients), pending()).await;
}

struct Clients {
    slots: Slots,
    health: Arc<Health>,
}

impl Handler<TcpStream> for Clients {
    fn slots(&self, _: &TcpStream, _: IpAddr) -> &Slots {
        &self.slots
    }

    async fn serve(&self, connection: Connection<TcpStream>) -> Result<(), ConnectionError> {
        let Connection { stream, stop_signal, .. } = connection;
        let answer = async |request| self.health.answer(&request);
        let result = timeout(CONNECTION_TIMEOUT, serve_http(stream, &HTTP, stop_signal.wait(), answer)).await;
        result.unwrap_or(Err(ConnectionError::Client))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn pods_are_counted_once_a_second_however_often_metrics_are_asked_for() {
        let (counts, began) = (Arc::new(AtomicU64::new(0)), Instant::now());
        let counter = Arc::clone(&counts);
        let refresh = Refresh::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        for millis in 0..2500 {
            refresh.at(began + Duration::from_millis(millis));
            assert_eq!(counts.load(Ordering::Relaxed), millis / 1000 + 1);
        }
    }
}
