//! The listener for the API server.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use nudge_server::accept::{Connection, ConnectionError, Handler, Server};
use nudge_server::http::{HttpLimits, serve_http};
use nudge_server::shares::Shares;
use nudge_server::slots::{Bounds, Slots};
use nudge_server::tls::{AHEAD_BYTES, Tls, Turns};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::AdmissionSettings;
use super::exchange::Exchange;
use crate::caller::Caller;
use crate::metrics::AdmissionMetrics;

/// The maximum length of the head of a request.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// The time that a client may read nothing of an answer.
const STALL_TIMEOUT: Duration = Duration::from_secs(20);

/// Serves until `stopping` is true or its sender is gone, then lets requests that are being answered end.
pub(super) async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    exchange: Exchange,
    settings: AdmissionSettings,
    metrics: AdmissionMetrics,
    mut stopping: watch::Receiver<bool>,
) {
    let server =
        Server { name: "admission", metrics: metrics.connections.clone(), drain: settings.stop_timeout, trimmer: None };
    let reviews = Reviews {
        slots: Slots::new(Bounds::shared(settings.max_connections), metrics.connections),
        tls: Tls {
            config: tls,
            handshake_timeout: settings.handshake_timeout,
            stall: STALL_TIMEOUT,
            turns: Some(Turns { shares: Shares::new(settings.max_handshakes, 1), wait: settings.turn_timeout }),
            plain_http: "this port speaks HTTPS to the API server",
        },
        http: HttpLimits { head: settings.idle_timeout, head_bytes: MAX_HEAD_BYTES, buffer_bytes: MAX_HEAD_BYTES },
        exchange,
    };
    let shutdown = async {
        let _ = stopping.wait_for(|&stop| stop).await;
    };
    server.run(listener, Arc::new(reviews), shutdown).await;
}

struct Reviews {
    slots: Slots,
    tls: Tls,
    http: HttpLimits,
    exchange: Exchange,
}

impl Handler<TcpStream> for Reviews {
    fn slots(&self, _: &TcpStream, _: IpAddr) -> &Slots {
        &self.slots
    }

    async fn serve(&self, connection: Connection<TcpStream>) -> Result<(), ConnectionError> {
        let Connection { stream, slot, stop_signal } = connection;
        let address = stream.peer_addr().map_err(|_| ConnectionError::Client)?.ip().to_canonical();
        let stream = tokio::select! {
            stream = self.tls.accept(stream, &slot, AHEAD_BYTES) => stream?,
            () = stop_signal.wait() => return Ok(()),
        };
        // If there is an authority for clients, only its certificates pass the handshake.
        let caller = Caller { address, authenticated: stream.get_ref().1.peer_certificates().is_some() };
        let answer = async |request| {
            let _busy = slot.begin_request();
            self.exchange.answer(request, caller).await
        };
        serve_http(stream, &self.http, stop_signal.wait(), answer).await
    }
}
