//! `/healthz`, `/readyz` and `/metrics`, by plain HTTP and without a token: they never hold a name of a user's or a value.

use std::convert::Infallible;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use nudge_server::slots::Slots;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

/// Most connections at a time, with a share for each address.
const CONNECTIONS: usize = 64;
/// How long one may last.
const LONGEST: Duration = Duration::from_secs(30);

/// A question with a sentence for an answer where it is "no".
pub(super) type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// What the endpoints answer.
pub(super) struct Health {
    /// The process should be restarted where this says no.
    pub(super) live: Check,
    /// Agents and webhooks should go elsewhere where this says no.
    pub(super) ready: Check,
    /// Brings gauges up to date before they are shown.
    pub(super) refresh: Box<dyn Fn() + Send + Sync>,
    /// The figures.
    pub(super) registry: RwLock<Registry>,
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
                (self.refresh)();
                let mut text = String::new();
                let registry = self.registry.read().unwrap_or_else(PoisonError::into_inner);
                match prometheus_client::encoding::text::encode(&mut text, &registry) {
                    Ok(()) => reply(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", text),
                    Err(error) => reply(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", error.to_string()),
                }
            }
            _ => reply(StatusCode::NOT_FOUND, "text/plain", "there are /healthz, /readyz and /metrics\n".to_owned()),
        }
    }
}

fn reply(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    response
}

/// Serves for ever.
pub(super) async fn serve(listener: TcpListener, health: Arc<Health>) {
    let slots = Slots::new(CONNECTIONS, Gauge::default());
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of files, most likely: others must end first.
                tracing::warn!(%error, "a connection for health or metrics can't be taken");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some(place) = slots.take(peer.ip(), Instant::now()) else { continue };
        let health = Arc::clone(&health);
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let response = health.answer(&request);
                async move { Ok::<_, Infallible>(response) }
            });
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(5));
            let connection = http.serve_connection(TokioIo::new(stream), service);
            place.keep(tokio::time::timeout(LONGEST, connection)).await
        });
    }
}
