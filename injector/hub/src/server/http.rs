//! One request and one reply over a connection.
//!
//! A hyper connection keeps 16 KiB of buffers for as long as a request is not answered, which for a hub is nearly always. So
//! hyper reads the request and is then dropped together with its buffers; the reply, a few fixed lines, is written without it.

use std::convert::Infallible;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH};
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Response, Version};
use hyper_util::rt::TokioIo;
use nudge_protocol::hub::{INTERRUPT, MAX_REQUEST_BYTES};
use nudge_server::http::{BodyError, HttpLimits, read_body};
use nudge_server::shares::SharePermit;
use nudge_server::slots::Slot;
use nudge_server::tls::TlsStream;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::oneshot;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::callers::{Claims, Origin};
use crate::hub::Hub;
use crate::reply::{Refusal, Reply};
use crate::settings::Settings;

/// The longest reading buffer, in bytes: the least that hyper takes above the head's bound.
const BUFFER_BYTES: usize = 16 * 1024;

/// A request that has been read whole.
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) path: String,
    /// The token without `Bearer`; empty where there is none.
    pub(super) token: Zeroizing<String>,
    /// The body, or why the request is refused.
    pub(super) body: Result<Body, Refusal>,
    /// Whether the connection can't be used again: the client says so, or has sent more than one request.
    pub(super) last: bool,
    /// Whether the client already wants the poll to end, if it is one that would be held.
    pub(super) interrupted: bool,
}

/// A body, the room that it takes, and the claims of the token by which it was read.
pub(super) struct Body {
    pub(super) claims: Claims,
    pub(super) bytes: Vec<u8>,
    _room: SharePermit,
}

/// Reads one request; `None` where none came in time or it was not HTTP, which hyper has answered.
pub(super) async fn read(stream: &mut TlsStream, hub: &Hub, slot: &Slot, from: Origin) -> Option<Request> {
    let (sender, receiver) = oneshot::channel();
    let sender = Mutex::new(Some(sender));
    let service = service_fn(|request: hyper::Request<Incoming>| {
        let sender = sender.lock().ok().and_then(|mut sender| sender.take());
        async move {
            let request = take(request, hub, slot, from).await;
            if let Some(sender) = sender {
                let _ = sender.send(request);
            }
            // `write` answers.
            std::future::pending::<()>().await;
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let settings = &hub.settings;
    let limits = HttpLimits { head: settings.head, head_bytes: settings.head_bytes, buffer_bytes: BUFFER_BYTES };
    let mut connection = limits.builder().serve_connection(TokioIo::new(stream), service);
    let request = tokio::select! {
        ended = &mut connection => {
            if let Err(error) = ended {
                tracing::debug!(%error, "no request could be read");
            }
            return None;
        }
        request = receiver => request,
    };
    let mut request = request.ok()?;
    let next = connection.into_parts().read_buf;
    request.interrupted = *next == INTERRUPT[..];
    request.last |= request.body.is_err() || !(next.is_empty() || request.interrupted);
    Some(request)
}

/// Reads the body only where the token can be good: clients that have none of a pod take none of the room for bodies.
async fn take(request: hyper::Request<Incoming>, hub: &Hub, slot: &Slot, from: Origin) -> Request {
    let (head, body) = request.into_parts();
    let length =
        content_length(&head.headers).map_or(MAX_REQUEST_BYTES, |length| usize::try_from(length).unwrap_or(usize::MAX));
    let token = Zeroizing::new(bearer(&head.headers).unwrap_or_default().to_owned());
    // What waits for a pod that is new is at work: it does not give way as idle.
    let _busy = slot.begin_request();
    let body = match hub.authentication.admit(&token, from).await {
        Err(refusal) => Err(refusal),
        Ok(_) if length > MAX_REQUEST_BYTES => Err(Refusal::TooLarge),
        Ok(claims) => {
            timeout(hub.settings.body, collect(claims, body, length, hub, from)).await.unwrap_or(Err(Refusal::TooSlow))
        }
    };
    let closes = |value: &hyper::header::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"close");
    Request {
        token,
        path: head.uri.path().to_owned(),
        last: head.version != Version::HTTP_11 || head.headers.get_all(CONNECTION).iter().any(closes),
        method: head.method,
        body,
        interrupted: false,
    }
}

/// Reads a body of at most so many bytes, when there is room for it.
async fn collect(claims: Claims, body: Incoming, length: usize, hub: &Hub, from: Origin) -> Result<Body, Refusal> {
    let room = hub.bodies.take(from.peer, u32::try_from(length).unwrap_or(u32::MAX)).await;
    match read_body(body, length).await {
        Ok(bytes) => Ok(Body { claims, bytes, _room: room }),
        Err(BodyError::TooLong) => Err(Refusal::TooLarge),
        Err(BodyError::BrokenOff) => {
            Err(Refusal::BadRequest("the body broke off; send as much as Content-Length says".to_owned()))
        }
    }
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Sends `reply`; `false` where the client did not read it in time.
pub(super) async fn write(stream: &mut TlsStream, reply: Reply, settings: &Settings) -> bool {
    let pieces = reply.into_bytes();
    let seconds = pieces.iter().map(Bytes::len).sum::<usize>() / settings.rate.max(1);
    let limit = settings.write + Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX));
    let writes = async {
        for piece in pieces {
            stream.write_all(&piece).await?;
        }
        stream.flush().await
    };
    matches!(timeout(limit, writes).await, Ok(Ok(())))
}
