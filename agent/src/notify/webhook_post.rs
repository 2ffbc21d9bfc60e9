//! Posts one event to one subscriber, or one question to a container, signed as Standard Webhooks 1.0.0 specifies
//! (<https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, StatusCode, header};
use nudge_protocol::webhooks::{ConfigVersion, WebhookEvent, WebhookEventData};
use nudge_protocol::{VersionName, headers};
use ring::hmac;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use zeroize::Zeroizing;

use super::WebhookTarget;
use super::http_exchange::{DeliverError, exchange, request};
use crate::content::Dictionary;

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
    /// The HTTP status. Each of 200 to 299 acknowledges the event.
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
    let request = request(Method::POST, target)
        .header(header::CONTENT_TYPE, "application/json")
        .header(headers::WEBHOOK_ID, id)
        .header(headers::WEBHOOK_TIMESTAMP, timestamp)
        .header(headers::WEBHOOK_SIGNATURE, body_signature)
        .body(Full::new(body));
    let max_bytes = |status| if status == StatusCode::UNPROCESSABLE_ENTITY { max_text_bytes } else { 0 };
    let mut text = Zeroizing::new(Vec::with_capacity(max_text_bytes));
    let (status, body) = exchange(target, request, max_bytes, &mut |part| text.extend_from_slice(part)).await?;
    Ok(WebhookAnswer { status, text: body.is_some_and(|body| body.is_ok()).then_some(text) })
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
