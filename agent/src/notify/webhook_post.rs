//! Posts one event to one subscriber, or one question to a container, signed as Standard Webhooks 1.0.0 specifies
//! (<https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>).

use std::io;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use nudge_protocol::webhooks::{ConfigVersion, WebhookEvent, WebhookEventData};
use nudge_protocol::{VersionName, headers};
use ring::hmac;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use zeroize::Zeroizing;

use super::WebhookTarget;
use crate::content::Dictionary;

/// The maximum time for one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum time for the body of an answer after its head.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// The reason why an event was not delivered.
#[derive(Debug, thiserror::Error)]
pub enum DeliverError {
    /// The target can't be reached.
    #[error("the target can't be reached: {0}")]
    Connect(io::Error),
    /// The connection broke, or the target speaks another protocol.
    #[error("the request failed: {0}")]
    Http(#[from] hyper::Error),
    /// The target did not answer in time.
    #[error("the target did not answer within {} seconds", ATTEMPT_TIMEOUT.as_secs())]
    TimedOut,
    /// The target answered with another status than 2xx.
    #[error("the target answered {0}; only 2xx counts, and redirects are not followed")]
    Status(StatusCode),
}

/// An event before it is posted.
pub struct Event<'a> {
    /// The type of the event.
    pub kind: &'static str,
    /// The time of the event.
    pub at: OffsetDateTime,
    /// The dictionary that the event announces.
    pub dictionary: &'a Dictionary,
    /// The version under which a container reads that dictionary when it is asked.
    pub candidate: Option<&'a VersionName>,
    /// The changed keys.
    pub changed: Vec<String>,
    /// Whether more keys than these have changed.
    pub truncated: bool,
}

impl Event<'_> {
    /// Returns the event as JSON.
    pub fn body(self) -> Bytes {
        let configs = self.dictionary.configs().iter();
        let event = WebhookEvent {
            kind: self.kind.to_owned(),
            timestamp: self.at.format(&Rfc3339).unwrap_or_default(),
            data: WebhookEventData {
                etag: self.dictionary.etag().to_owned(),
                configs: configs
                    .map(|view| ConfigVersion { name: view.name.clone(), version: view.version.clone() })
                    .collect(),
                candidate: self.candidate.cloned(),
                changed: self.changed,
                truncated: self.truncated,
            },
        };
        // The event is a map with text keys, which always serialises.
        serde_json::to_vec(&event).unwrap_or_default().into()
    }
}

/// The answer to a post.
pub struct WebhookAnswer {
    /// The status.
    pub status: StatusCode,
    /// The body, if it says why a container refuses; `None` if it is too long, too slow or was cut.
    pub text: Option<Zeroizing<Vec<u8>>>,
}

/// Returns the value of `webhook-signature`: HMAC-SHA256 over `id.timestamp.body`.
pub(super) fn signature(secret: &[u8], id: &str, timestamp: i64, body: &[u8]) -> String {
    let mut signed = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, secret));
    signed.update(format!("{id}.{timestamp}.").as_bytes());
    signed.update(body);
    format!("v1,{}", STANDARD.encode(signed.sign()))
}

/// Makes one attempt to deliver an event.
pub(super) async fn deliver(target: &WebhookTarget, secret: &[u8], id: &str, body: Bytes) -> Result<(), DeliverError> {
    let status = post(target, secret, id, body, 0).await?.status;
    if status.is_success() { Ok(()) } else { Err(DeliverError::Status(status)) }
}

/// Makes one attempt to post `body`, and returns the answer. Of a body that gives a reason (422), no more than
/// `max_text_bytes` are read; no other body is read.
pub async fn post(
    target: &WebhookTarget,
    secret: &[u8],
    id: &str,
    body: Bytes,
    max_text_bytes: usize,
) -> Result<WebhookAnswer, DeliverError> {
    let timestamp = OffsetDateTime::now_utc().unix_timestamp();
    let body_signature = signature(secret, id, timestamp, &body);
    let request = Request::builder()
        .method(Method::POST)
        .uri(target.path())
        .header(header::HOST, target.host())
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::USER_AGENT, concat!("nudge-agent/", env!("CARGO_PKG_VERSION")))
        .header(header::CONNECTION, "close")
        .header(headers::WEBHOOK_ID, id)
        .header(headers::WEBHOOK_TIMESTAMP, timestamp)
        .header(headers::WEBHOOK_SIGNATURE, body_signature)
        .body(Full::new(body))
        .map_err(|error| DeliverError::Connect(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
    exchange(target, request, max_text_bytes, Instant::now() + ATTEMPT_TIMEOUT).await
}

/// Sends the request and returns the reply.
async fn exchange(
    target: &WebhookTarget,
    request: Request<Full<Bytes>>,
    max_text_bytes: usize,
    deadline: Instant,
) -> Result<WebhookAnswer, DeliverError> {
    let timed_out = |_| DeliverError::TimedOut;
    let connect = TcpStream::connect(target.addresses());
    let stream = timeout_at(deadline, connect).await.map_err(timed_out)?.map_err(DeliverError::Connect)?;
    let (mut sender, connection) =
        http1::Builder::new().max_buf_size(16 * 1024).handshake(TokioIo::new(stream)).await?;
    let reply = async {
        let (head, body) = timeout_at(deadline, sender.send_request(request)).await.map_err(timed_out)??.into_parts();
        let text = if max_text_bytes > 0 && head.status == StatusCode::UNPROCESSABLE_ENTITY {
            timeout(BODY_TIMEOUT, Limited::new(body, max_text_bytes).collect()).await.ok().and_then(Result::ok)
        } else {
            None
        };
        Ok(WebhookAnswer { status: head.status, text: text.map(|text| Zeroizing::new(text.to_bytes().to_vec())) })
    };
    tokio::pin!(reply);
    tokio::select! {
        biased;
        reply = &mut reply => reply,
        // The connection drives the request. Whether it ends well or with a fault, the reply says so.
        _ = connection => reply.await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_of_the_specifications_example() {
        // From the test vectors of the Standard Webhooks libraries.
        let secret = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signed = signature(&secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }
}
