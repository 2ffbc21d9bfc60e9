//! One connection of an agent: handshake, then request and reply in turns. While a poll is held nothing but the TLS session
//! and a few timers is kept.

use std::sync::Arc;
use std::time::Duration;

use nudge_cluster::jitter::jittered;
use nudge_server::slots::{Peer, Place};
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::http::{Request, read, write};
use super::reply::Reply;
use super::{Hub, poll::Repeats};

/// How much TLS may encrypt ahead of what a client takes, in bytes.
const AHEAD_BYTES: usize = 64 * 1024;
/// How long a handshake keeps its turn when it waits for the client.
const TURN: Duration = Duration::from_secs(1);

/// The connection ended with a fault of the client or the network.
pub(super) struct Faulty;

/// Serves `stream` until it ends.
pub(super) async fn serve(
    stream: TcpStream,
    tls: Arc<ServerConfig>,
    hub: &Arc<Hub>,
    place: &Place,
) -> Result<(), Faulty> {
    // Replies are written whole, so waiting for more to send would only delay them.
    let _ = stream.set_nodelay(true);
    let mut tls = Box::pin(handshake(stream, tls, hub, place.peer())).await.ok_or(Faulty)?;
    let dies = Instant::now() + jittered(hub.settings.age);
    let mut repeats = Repeats::default();
    let mut patience = hub.settings.head;
    loop {
        let waits = patience.min(dies.saturating_duration_since(Instant::now()));
        tokio::select! {
            there = byte(&mut tls) => if !there { return Ok(()) },
            () = sleep(waits) => break,
            () = hub.sent_away() => break,
        }
        patience = hub.settings.idle;
        let Some(request) = Box::pin(read(&mut tls, &hub.settings)).await else { return Err(Faulty) };
        let (head, last) = (request.method == hyper::Method::HEAD, request.last);
        let faulty = request.body.is_err();
        let Some(reply) = answer(&tls, request, hub, place, &mut repeats).await else { return Ok(()) };
        // A reply to HEAD must not have the body that ours have.
        let reply = if last || head || Instant::now() >= dies { reply.closing() } else { reply };
        let close = reply.close;
        if !Box::pin(write(&mut tls, reply, &hub.settings)).await {
            return Err(Faulty);
        }
        if close {
            if faulty {
                Box::pin(linger(&mut tls)).await;
            }
            break;
        }
    }
    let _ = timeout(Duration::from_secs(1), tls.shutdown()).await;
    Ok(())
}

/// The reply; `None` where the client has gone.
async fn answer(
    tls: &TlsStream<TcpStream>,
    request: Request,
    hub: &Arc<Hub>,
    place: &Place,
    repeats: &mut Repeats,
) -> Option<Reply> {
    let stream = tls.get_ref().0;
    let mut byte = [0];
    let _busy = place.busy();
    let answer = hub.answer(request, place.peer(), repeats);
    tokio::pin!(answer);
    tokio::select! {
        biased;
        reply = &mut answer => Some(reply),
        // A client has nothing to say while it waits: it is closing, or is none of ours. Looking at the socket itself needs no buffer.
        _ = stream.peek(&mut byte) => None,
    }
}

/// Waits until there is something to read; `false` at the end.
async fn byte(tls: &mut TlsStream<TcpStream>) -> bool {
    let (stream, session) = tls.get_mut();
    if session.process_new_packets().is_ok_and(|state| state.plaintext_bytes_to_read() > 0) {
        return true;
    }
    stream.peek(&mut [0]).await.is_ok_and(|count| count > 0)
}

/// The handshake: when its turn has come, and only when the client has begun.
async fn handshake(stream: TcpStream, tls: Arc<ServerConfig>, hub: &Hub, peer: Peer) -> Option<TlsStream<TcpStream>> {
    let first = timeout(hub.settings.handshake, stream.peek(&mut [0])).await;
    if !first.is_ok_and(|first| first.is_ok_and(|count| count > 0)) {
        return None;
    }
    let mut turn = timeout(hub.settings.turn, hub.handshakes.take(peer, 1)).await.ok();
    turn.as_ref()?;
    let acceptor = TlsAcceptor::from(tls);
    let accept = acceptor.accept_with(stream, |session| session.set_buffer_limit(Some(AHEAD_BYTES)));
    tokio::pin!(accept);
    let ended = async {
        if let Ok(done) = timeout(TURN, &mut accept).await {
            return done;
        }
        // What is left for us to do is little; others need not wait for a client that dawdles.
        turn.take();
        accept.await
    };
    match timeout(hub.settings.handshake, ended).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            tracing::debug!(%error, "TLS handshake failed");
            None
        }
        Err(_) => None,
    }
}

/// Reads a little of what was not wanted: closing with unread bytes would take the reply with it.
async fn linger(tls: &mut TlsStream<TcpStream>) {
    let mut rest = [0; 4096];
    let reads = async {
        for _ in 0..64 {
            if tls.read(&mut rest).await.is_ok_and(|count| count == 0) {
                return;
            }
        }
    };
    let _ = timeout(Duration::from_secs(1), reads).await;
}
