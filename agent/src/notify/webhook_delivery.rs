//! Posts one event to one subscriber, signed as Standard Webhooks 1.0.0 specifies
//! (<https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>).

use std::io;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use nudge_protocol::headers;
use nudge_protocol::webhooks::{CONFIG_CHANGED, ConfigVersion, WebhookEvent, WebhookEventData};
use ring::hmac;
use time::format_description::well_known::Rfc3339;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::WebhookTarget;
use crate::publish::Published;

/// How long one attempt may take.
pub(super) const ATTEMPT: Duration = Duration::from_secs(10);

/// Why an event was not delivered.
#[derive(Debug, thiserror::Error)]
pub(super) enum DeliverError {
    #[error("the target can't be reached: {0}")]
    Connect(io::Error),
    #[error("the request failed: {0}")]
    Http(#[from] hyper::Error),
    #[error("the target did not answer within {} seconds", ATTEMPT.as_secs())]
    TimedOut,
    #[error("the target answered {0}; only 2xx counts, and redirects are not followed")]
    Status(StatusCode),
}

/// The event for `published`. `truncated` says that more keys than `changed` have changed.
pub(super) fn event_body(published: &Published, changed: Vec<String>, truncated: bool) -> Vec<u8> {
    let configs = published.dictionary.configs().iter();
    let event = WebhookEvent {
        kind: CONFIG_CHANGED.to_owned(),
        timestamp: published.at.format(&Rfc3339).unwrap_or_default(),
        data: WebhookEventData {
            etag: published.dictionary.etag().to_owned(),
            configs: configs
                .map(|view| ConfigVersion { name: view.name.clone(), version: view.version.clone() })
                .collect(),
            changed,
            truncated,
        },
    };
    // The event is a map with text keys, which always serialises.
    serde_json::to_vec(&event).unwrap_or_default()
}

/// The value of `webhook-signature`: HMAC-SHA256 over `id.timestamp.body`.
pub(super) fn signature(secret: &[u8], id: &str, timestamp: i64, body: &[u8]) -> String {
    let mut signed = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, secret));
    signed.update(format!("{id}.{timestamp}.").as_bytes());
    signed.update(body);
    format!("v1,{}", STANDARD.encode(signed.sign()))
}

/// Makes one attempt.
pub(super) async fn deliver(
    target: &WebhookTarget,
    secret: &[u8],
    id: &str,
    timestamp: i64,
    body: Bytes,
) -> Result<(), DeliverError> {
    let signature = signature(secret, id, timestamp, &body);
    let request = Request::builder()
        .method(Method::POST)
        .uri(target.path())
        .header(header::HOST, target.host())
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::USER_AGENT, concat!("nudge-agent/", env!("CARGO_PKG_VERSION")))
        .header(header::CONNECTION, "close")
        .header(headers::WEBHOOK_ID, id)
        .header(headers::WEBHOOK_TIMESTAMP, timestamp)
        .header(headers::WEBHOOK_SIGNATURE, signature)
        .body(Full::new(body))
        .map_err(|error| DeliverError::Connect(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
    let status = timeout(ATTEMPT, exchange(target, request)).await.map_err(|_| DeliverError::TimedOut)??;
    if status.is_success() { Ok(()) } else { Err(DeliverError::Status(status)) }
}

/// Sends the request and returns the reply's status. The body does not matter and is not read.
async fn exchange(target: &WebhookTarget, request: Request<Full<Bytes>>) -> Result<StatusCode, DeliverError> {
    let stream = connect(target).await.map_err(DeliverError::Connect)?;
    let (mut sender, connection) =
        http1::Builder::new().max_buf_size(16 * 1024).handshake(TokioIo::new(stream)).await?;
    let reply = sender.send_request(request);
    tokio::pin!(reply);
    tokio::select! {
        biased;
        reply = &mut reply => Ok(reply?.status()),
        // The connection drives the request. Whether it ends well or with a fault, the reply says so.
        _ = connection => Ok(reply.await?.status()),
    }
}

async fn connect(target: &WebhookTarget) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in target.addresses() {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
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
