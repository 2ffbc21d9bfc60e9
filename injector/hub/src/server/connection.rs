//! One connection of an agent: handshake, then request and reply in turns. While a poll is held nothing but the TLS session
//! and a few timers is kept.

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

use super::http::{Request, read, write};
use crate::callers::Origin;
use crate::hub::Hub;
use crate::polling::ConnectionPolls;
use crate::reply::Reply;

/// Serves a connection until its end.
pub(super) async fn serve(connection: Connection<TcpStream>, tls: &Tls, hub: &Arc<Hub>) -> Result<(), ConnectionError> {
    let Connection { stream, slot, .. } = connection;
    let address = stream.peer_addr().map_err(|_| ConnectionError::Client)?.ip().to_canonical();
    let from = Origin { address, peer: slot.peer(), since: Instant::now() };
    let mut tls = tls.accept(stream, &slot, AHEAD_BYTES).await?;
    let dies = Instant::now() + with_jitter(hub.settings.age);
    let mut polls = ConnectionPolls::default();
    let mut patience = hub.settings.head;
    loop {
        let waits = patience.min(dies.saturating_duration_since(Instant::now()));
        tokio::select! {
            there = byte(&mut tls) => if !there { return Ok(()) },
            () = sleep(waits) => break,
            () = hub.drain.sent_away() => break,
        }
        patience = hub.settings.idle;
        let Some(request) = Box::pin(read(&mut tls, hub, &slot, from)).await else {
            return Err(ConnectionError::Client);
        };
        let (head, last) = (request.method == hyper::Method::HEAD, request.last);
        let faulty = request.body.is_err();
        let Some(mut reply) = answer(&mut tls, request, hub, &slot, from, &mut polls).await else { return Ok(()) };
        // A reply to HEAD must not have the body that ours have.
        reply.close |= last || head || Instant::now() >= dies;
        let close = reply.close;
        if !Box::pin(write(&mut tls, reply, &hub.settings)).await {
            return Err(ConnectionError::Client);
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

/// Returns the reply; `None` where the client has closed the connection.
async fn answer(
    tls: &mut TlsStream,
    request: Request,
    hub: &Arc<Hub>,
    slot: &Slot,
    from: Origin,
    polls: &mut ConnectionPolls,
) -> Option<Reply> {
    let _busy = slot.begin_request();
    let interrupted: Arc<Notify> = Arc::default();
    polls.interrupted = Arc::clone(&interrupted);
    if request.interrupted {
        interrupted.notify_one();
    }
    let answer = async { hub.answer(request, from, polls).await.unwrap_or_else(Reply::from) };
    tokio::pin!(answer);
    tokio::select! {
        biased;
        reply = &mut answer => return Some(reply),
        wants = interrupts(tls) => if wants { interrupted.notify_one() } else { return None },
    }
    let mut byte = [0];
    tokio::select! {
        biased;
        reply = &mut answer => Some(reply),
        // Once is enough.
        _ = tls.get_ref().0.get_ref().peek(&mut byte) => None,
    }
}

/// Waits until the client says that it has something to say, by an empty line; `false` where it does anything else, which no agent does but
/// to close the connection.
async fn interrupts(tls: &mut TlsStream) -> bool {
    let mut line = [0; INTERRUPT.len()];
    byte(tls).await && tls.read(&mut line).await.is_ok_and(|count| line[..count] == *INTERRUPT)
}

/// Waits until there is something to read; `false` at the end. Looking at the socket itself needs no buffer while there is nothing.
async fn byte(tls: &mut TlsStream) -> bool {
    let (stream, session) = tls.get_mut();
    if session.process_new_packets().is_ok_and(|state| state.plaintext_bytes_to_read() > 0) {
        return true;
    }
    stream.get_ref().peek(&mut [0]).await.is_ok_and(|count| count > 0)
}

/// Reads a little of the refused request: closing with unread bytes would take the reply with it.
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
