//! Reads one request, and writes one reply, over a connection.
//!
//! A hyper connection keeps 16 KiB of buffers as long as a request is not answered, which in a hub is nearly always. So
//! hyper reads the request and is then dropped together with its buffers. The reply, a few fixed lines, is written
//! without it.

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

use crate::callers::{Claims, ConnectionOrigin};
use crate::hub::Hub;
use crate::reply::{HubReply, PollRefusal};
use crate::settings::Settings;

/// The maximum bytes of the reading buffer: the minimum that hyper takes above the limit of the head.
const MAX_BUFFER_BYTES: usize = 16 * 1024;

/// A request that has been read whole.
pub(super) struct AgentRequest {
    pub(super) method: Method,
    pub(super) path: String,
    /// The token without `Bearer`, which is empty if there is none.
    pub(super) token: Zeroizing<String>,
    /// The body, or why the request is refused.
    pub(super) body: Result<Body, PollRefusal>,
    /// Whether the connection can't be used again, because the client says so, or has sent more than one request.
    pub(super) is_last: bool,
    /// Whether the client has already interrupted the poll.
    pub(super) is_interrupted: bool,
}

/// A body, the room that it takes, and the claims of the token that came with it.
pub(super) struct Body {
    pub(super) claims: Claims,
    pub(super) bytes: Vec<u8>,
    _room: SharePermit,
}

/// Reads one request. `None` if none came in time, or if it was not HTTP, which hyper has answered.
pub(super) async fn read_request(
    stream: &mut TlsStream,
    hub: &Hub,
    slot: &Slot,
    from: ConnectionOrigin,
) -> Option<AgentRequest> {
    let (sender, receiver) = oneshot::channel();
    let sender = Mutex::new(Some(sender));
    let service = service_fn(|request: hyper::Request<Incoming>| {
        let sender = sender.lock().ok().and_then(|mut sender| sender.take());
        async move {
            let request = admit(request, hub, slot, from).await;
            if let Some(sender) = sender {
                let _ = sender.send(request);
            }
            // `write_reply` answers in place of hyper.
            std::future::pending::<()>().await;
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let settings = &hub.settings;
    let limits =
        HttpLimits { head: settings.head_timeout, head_bytes: settings.max_head_bytes, buffer_bytes: MAX_BUFFER_BYTES };
    let mut connection = limits.builder().serve_connection(TokioIo::new(stream), service);
    let request = tokio::select! {
        result = &mut connection => {
            if let Err(error) = result {
                tracing::debug!(%error, "no request could be read");
            }
            return None;
        }
        request = receiver => request,
    };
    let mut request = request.ok()?;
    let unread_bytes = connection.into_parts().read_buf;
    request.is_interrupted = *unread_bytes == INTERRUPT[..];
    request.is_last |= request.body.is_err() || !(unread_bytes.is_empty() || request.is_interrupted);
    Some(request)
}

/// Reads the body if the token can be valid, so that only clients with the token of a pod use the bytes for bodies.
async fn admit(request: hyper::Request<Incoming>, hub: &Hub, slot: &Slot, from: ConnectionOrigin) -> AgentRequest {
    let (head, body) = request.into_parts();
    let length = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let length = length.map_or(MAX_REQUEST_BYTES, |length| usize::try_from(length).unwrap_or(usize::MAX));
    let token = Zeroizing::new(bearer_token(&head.headers).unwrap_or_default().to_owned());
    // A connection that waits for a new pod is busy, and not closed as idle.
    let _busy = slot.begin_request();
    let body = match hub.authentication.admit(&token, from).await {
        Err(refusal) => Err(refusal),
        Ok(_) if length > MAX_REQUEST_BYTES => Err(PollRefusal::TooLarge),
        Ok(claims) => {
            let body = collect_body(claims, body, length, hub, from);
            timeout(hub.settings.body_timeout, body).await.unwrap_or(Err(PollRefusal::TooSlow))
        }
    };
    let is_close = |value: &hyper::header::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"close");
    AgentRequest {
        token,
        path: head.uri.path().to_owned(),
        is_last: head.version != Version::HTTP_11 || head.headers.get_all(CONNECTION).iter().any(is_close),
        method: head.method,
        body,
        is_interrupted: false,
    }
}

/// Reads a body of at most `length` bytes, as soon as there is room for it.
async fn collect_body(
    claims: Claims,
    body: Incoming,
    length: usize,
    hub: &Hub,
    from: ConnectionOrigin,
) -> Result<Body, PollRefusal> {
    let room = hub.bodies.take(from.peer, u32::try_from(length).unwrap_or(u32::MAX)).await;
    match read_body(body, length).await {
        Ok(bytes) => Ok(Body { claims, bytes, _room: room }),
        Err(BodyError::TooLong) => Err(PollRefusal::TooLarge),
        Err(BodyError::BrokenOff) => {
            Err(PollRefusal::BadRequest("the body broke off; send as much as Content-Length says".to_owned()))
        }
    }
}

fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Writes a reply. Returns `false` if the client did not read it in time.
pub(super) async fn write_reply(stream: &mut TlsStream, reply: HubReply, settings: &Settings) -> bool {
    let pieces = reply.into_bytes();
    let seconds = pieces.iter().map(Bytes::len).sum::<usize>() / settings.min_bytes_per_second.max(1);
    let limit = settings.write_timeout + Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX));
    let writes = async {
        for piece in pieces {
            stream.write_all(&piece).await?;
        }
        stream.flush().await
    };
    matches!(timeout(limit, writes).await, Ok(Ok(())))
}
