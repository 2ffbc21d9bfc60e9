//! Takes connections within bounds, over TLS, each in a task of its own whose panic ends that connection only.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use nudge_server::slots::{Place, Slots};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::AdmissionSettings;
use super::exchange::Exchange;
use crate::metrics::AdmissionMetrics;

/// How long taking connections pauses when the process has no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Largest head of a request.
const HEAD_BYTES: usize = 16 * 1024;

/// What every connection needs.
struct Shared {
    acceptor: TlsAcceptor,
    exchange: Arc<Exchange>,
    settings: AdmissionSettings,
    metrics: AdmissionMetrics,
    stopping: watch::Receiver<bool>,
}

/// Serves until `stopping` says true or its sender is gone, then ends in good order.
pub(super) async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    exchange: Arc<Exchange>,
    settings: AdmissionSettings,
    metrics: AdmissionMetrics,
    mut stopping: watch::Receiver<bool>,
) {
    let slots = Slots::new(settings.connections, metrics.connections.clone());
    let acceptor = TlsAcceptor::from(tls);
    let shared = Arc::new(Shared { acceptor, exchange, settings, metrics, stopping: stopping.clone() });
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // Ended ones are taken out, so that the set does not grow.
            Some(_) = connections.join_next() => continue,
            _ = stopping.wait_for(|&stop| stop) => break,
        };
        match accepted {
            Ok((stream, peer)) => match slots.take(peer.ip(), Instant::now()) {
                Some(place) => {
                    connections.spawn(connection(stream, place, Arc::clone(&shared)));
                }
                None => {
                    shared.metrics.connections_refused.inc();
                }
            },
            Err(error) => {
                tracing::warn!(%error, "can't take a connection for admission");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let all_ended = async { while connections.join_next().await.is_some() {} };
    if timeout(settings.stop, all_ended).await.is_err() {
        tracing::warn!("requests for admission did not end in time and are cut");
    }
}

async fn connection(stream: TcpStream, place: Place, shared: Arc<Shared>) {
    match place.keep(converse(stream, &place, &shared)).await {
        Some(Ok(())) => {}
        Some(Err(Failed)) => drop(shared.metrics.connections_failed.inc()),
        None => drop(shared.metrics.connections_refused.inc()),
    }
}

/// The connection failed; what is to be known of it is that it did.
struct Failed;

async fn converse(stream: TcpStream, place: &Place, shared: &Shared) -> Result<(), Failed> {
    let _ = stream.set_nodelay(true);
    let mut stopping = shared.stopping.clone();
    let handshake = timeout(shared.settings.handshake, shared.acceptor.accept(stream));
    let stream = tokio::select! {
        shaken = handshake => shaken.map_err(|_| Failed)?.map_err(|_| Failed)?,
        _ = stopping.wait_for(|&stop| stop) => return Ok(()),
    };
    let service = service_fn(async |request| {
        let _busy = place.busy();
        Ok::<_, Infallible>(shared.exchange.answer(request, place.peer()).await)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(shared.settings.idle)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return ended.map_err(|_| Failed),
        _ = stopping.wait_for(|&stop| stop) => {}
    }
    // An idle connection ends at once, another after its answer.
    connection.as_mut().graceful_shutdown();
    timeout(shared.settings.stop, connection).await.map_err(|_| Failed)?.map_err(|_| Failed)
}
