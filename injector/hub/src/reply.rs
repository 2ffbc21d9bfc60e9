//! Replies to agents, and refusals.

use bytes::Bytes;
use hyper::StatusCode;
use nudge_protocol::hub::{MAX_REQUEST_BYTES, POLL_MEDIA_TYPE};
use nudge_protocol::{ErrorBody, HubErrorCode};

/// The reason to refuse a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PollRefusal {
    #[error("{0}")]
    BadRequest(String),
    #[error("{0}")]
    Unauthorized(&'static str),
    #[error("namespace {0} is not enabled for Nudge; a cluster admin enables it by `kubectl nudge enable {0}`")]
    NotEnabled(String),
    #[error("there is no such path; use /v1/poll or /v1/report")]
    NoSuchPath,
    #[error("this path does not take the method; use POST")]
    MethodNotAllowed,
    #[error("the body did not come in time; send it faster")]
    TooSlow,
    #[error("the body is larger than {MAX_REQUEST_BYTES} bytes; send less")]
    TooLarge,
    #[error("{0}; try again")]
    Unavailable(&'static str),
    #[error("the hub could not make the reply, which is a bug; see its log")]
    Internal,
}

impl PollRefusal {
    fn code(&self) -> (StatusCode, HubErrorCode) {
        match self {
            Self::BadRequest(_) => (StatusCode::BAD_REQUEST, HubErrorCode::BadRequest),
            Self::Unauthorized(_) => (StatusCode::UNAUTHORIZED, HubErrorCode::Unauthorized),
            Self::NotEnabled(_) => (StatusCode::FORBIDDEN, HubErrorCode::NotEnabled),
            Self::NoSuchPath => (StatusCode::NOT_FOUND, HubErrorCode::NoSuchPath),
            Self::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, HubErrorCode::MethodNotAllowed),
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, HubErrorCode::TooSlow),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, HubErrorCode::TooLarge),
            Self::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, HubErrorCode::Unavailable),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, HubErrorCode::Internal),
        }
    }
}

/// A reply to an agent.
#[derive(Debug)]
pub(crate) struct HubReply {
    pub(crate) status: StatusCode,
    media_type: &'static str,
    /// The other header lines, each with its end.
    headers: String,
    body: Vec<Bytes>,
    /// Whether the connection is closed after the reply.
    pub(crate) close: bool,
}

impl HubReply {
    /// Returns a reply without a body (204).
    pub(crate) fn empty() -> Self {
        let (status, headers) = (StatusCode::NO_CONTENT, String::new());
        Self { status, media_type: "", headers, body: Vec::new(), close: false }
    }

    /// Returns a reply with a poll's head and blocks.
    pub(crate) fn poll(body: Vec<Bytes>) -> Self {
        Self { status: StatusCode::OK, media_type: POLL_MEDIA_TYPE, body, ..Self::empty() }
    }

    /// Returns a reply that sends the agent to another replica (503).
    pub(crate) fn draining() -> Self {
        Self { close: true, ..PollRefusal::Unavailable("this replica of the hub is shutting down").into() }
    }

    /// Returns the bytes to send, in order.
    pub(crate) fn into_bytes(self) -> Vec<Bytes> {
        use std::fmt::Write as _;
        let length: usize = self.body.iter().map(Bytes::len).sum();
        let mut head = format!("HTTP/1.1 {}\r\n", self.status);
        if self.status != StatusCode::NO_CONTENT {
            // Writing to a String can't fail.
            let _ = write!(head, "content-type: {}\r\ncontent-length: {length}\r\n", self.media_type);
        }
        head += &self.headers;
        head += if self.close { "connection: close\r\n\r\n" } else { "\r\n" };
        let mut bytes = self.body;
        match bytes.first_mut() {
            // A small reply is sent by one write, in one TLS record.
            Some(first) => *first = [head.as_bytes(), first].concat().into(),
            None => bytes.push(head.into()),
        }
        bytes
    }
}

impl From<PollRefusal> for HubReply {
    fn from(refusal: PollRefusal) -> Self {
        let (status, error) = refusal.code();
        let body = ErrorBody { error: error.as_str().to_owned(), message: refusal.to_string() };
        // Two strings can't fail to serialise.
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let headers = match refusal {
            PollRefusal::Unauthorized(_) => "www-authenticate: Bearer\r\n".to_owned(),
            PollRefusal::MethodNotAllowed => "allow: POST\r\n".to_owned(),
            // The time is random, so that agents do not come back at the same time.
            PollRefusal::Unavailable(_) => format!("retry-after: {}\r\n", rand::random_range(1..=3)),
            _ => String::new(),
        };
        let close = matches!(refusal, PollRefusal::TooSlow | PollRefusal::TooLarge);
        Self { status, media_type: "application/json", headers, body: vec![body.into()], close }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(reply: HubReply) -> String {
        String::from_utf8(reply.into_bytes().concat()).unwrap()
    }

    #[test]
    fn a_reply_is_http() {
        assert_eq!(text(HubReply::empty()), "HTTP/1.1 204 No Content\r\n\r\n");
        let poll = HubReply { close: true, ..HubReply::poll(vec![Bytes::from("ab"), Bytes::from("c")]) };
        assert_eq!(
            text(poll),
            "HTTP/1.1 200 OK\r\ncontent-type: application/vnd.nudge.poll\r\ncontent-length: 3\r\nconnection: close\r\n\r\nabc"
        );
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let reply = text(PollRefusal::NotEnabled("shop".to_owned()).into());
        assert!(reply.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{reply}");
        assert!(reply.ends_with(
            r#""message":"namespace shop is not enabled for Nudge; a cluster admin enables it by `kubectl nudge enable shop`"}"#
        ));
        assert!(text(PollRefusal::Unauthorized("no").into()).contains("\r\nwww-authenticate: Bearer\r\n"));
        assert!(text(PollRefusal::Unavailable("no").into()).contains("\r\nretry-after: "));
    }
}
