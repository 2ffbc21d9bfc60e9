//! Serves one connection of an agent: the handshake, then requests and replies in turns. While a poll is held, only the
//! TLS session and a few timers are kept.

use std::sync::Arc;
use std::time::Duration;

use nudge_cluster::jitter::with_jitter;
use nudge_protocol::hub::INTERRUPT;
use nudge_server::accept::{Connection, ConnectionError};
use nudge_server::slots::Slot;
use nudge_server::tls::{AHEAD_BYTES, Tls, TlsStream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::http::{AgentRequest, read_request, write_reply};
use crate::callers::ConnectionOrigin;
use crate::hub::Hub;
use crate::polling::ConnectionPolls;
use crate::reply::HubReply;

/// Serves a connection until its end.
pub(super) async fn serve(connection: Connection<TcpStream>, tls: &Tls, hub: &Arc<Hub>) -> Result<(), ConnectionError> {
    let Connection { stream, slot, .. } = connection;
    let address = stream.peer_addr().map_err(|_| ConnectionError::Client)?.ip().to_canonical();
    let origin = ConnectionOrigin { address, peer: slot.peer(), since: Instant::now() };
    let mut tls = tls.accept(stream, &slot, AHEAD_BYTES).await?;
    let close_time = Instant::now() + with_jitter(hub.settings.max_connection_age);
    let mut polls = ConnectionPolls::default();
    let mut idle_timeout = hub.settings.head_timeout;
    loop {
        let idle_time = idle_timeout.min(close_time.saturating_duration_since(Instant::now()));
        tokio::select! {
            has_byte = wait_for_byte(&mut tls) => if !has_byte { return Ok(()) },
            () = sleep(idle_time) => break,
            () = hub.drain.wait_for_turn() => break,
        }
        idle_timeout = hub.settings.idle_timeout;
        let Some(request) = Box::pin(read_request(&mut tls, hub, &slot, origin)).await else {
            return Err(ConnectionError::Client);
        };
        let (is_head, is_last) = (request.method == hyper::Method::HEAD, request.is_last);
        let is_refused = request.body.is_err();
        let Some(mut reply) = answer(&mut tls, request, hub, &slot, origin, &mut polls).await else { return Ok(()) };
        // A reply to HEAD must not have a body, but the hub's replies have one, so the connection can't be used again.
        reply.close |= is_last || is_head || Instant::now() >= close_time;
        let close = reply.close;
        if !Box::pin(write_reply(&mut tls, reply, &hub.settings)).await {
            return Err(ConnectionError::Client);
        }
        if close {
            if is_refused {
                Box::pin(linger(&mut tls)).await;
            }
            break;
        }
    }
    let _ = timeout(Duration::from_secs(1), tls.shutdown()).await;
    Ok(())
}

/// Returns the reply, or `None` if the client has closed the connection.
async fn answer(
    tls: &mut TlsStream,
    request: AgentRequest,
    hub: &Arc<Hub>,
    slot: &Slot,
    from: ConnectionOrigin,
    polls: &mut ConnectionPolls,
) -> Option<HubReply> {
    let _busy = slot.begin_request();
    let interrupt: Arc<Notify> = Arc::default();
    polls.interrupt = Arc::clone(&interrupt);
    if request.is_interrupted {
        interrupt.notify_one();
    }
    let answer = async { hub.answer(request, from, polls).await.unwrap_or_else(HubReply::from) };
    tokio::pin!(answer);
    tokio::select! {
        biased;
        reply = &mut answer => return Some(reply),
        is_interrupt = wait_for_interrupt(tls) => if is_interrupt { interrupt.notify_one() } else { return None },
    }
    let mut byte = [0];
    tokio::select! {
        biased;
        reply = &mut answer => Some(reply),
        // An agent interrupts a poll only once, so more bytes, or the end, mean that it is gone.
        _ = tls.get_ref().0.get_ref().peek(&mut byte) => None,
    }
}

/// Waits until the client interrupts the poll by an empty line. Returns `false` if it does anything else: an agent only
/// closes the connection.
async fn wait_for_interrupt(tls: &mut TlsStream) -> bool {
    let mut line = [0; INTERRUPT.len()];
    wait_for_byte(tls).await && tls.read(&mut line).await.is_ok_and(|count| line[..count] == *INTERRUPT)
}

/// Waits until there is something to read. Returns `false` at the end. Peeking at the socket needs no buffer in the
/// meantime.
async fn wait_for_byte(tls: &mut TlsStream) -> bool {
    let (stream, session) = tls.get_mut();
    if session.process_new_packets().is_ok_and(|state| state.plaintext_bytes_to_read() > 0) {
        return true;
    }
    stream.get_ref().peek(&mut [0]).await.is_ok_and(|count| count > 0)
}

/// Reads a little of the refused request, because closing with unread bytes would discard the reply.
async fn linger(tls: &mut TlsStream) {
    let mut buffer = [0; 4096];
    let reads = async {
        for _ in 0..64 {
            if tls.read(&mut buffer).await.is_ok_and(|count| count == 0) {
                return;
            }
        }
    };
    let _ = timeout(Duration::from_secs(1), reads).await;
}
