//! The ways in which contact with the hub fails.

use std::error::Error;
use std::io;
use std::time::Duration;

use hyper::StatusCode;

/// A kind of failure: what decides about the next attempt. A bounded set, for it is a metric's label too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Nothing listens there, or the name is not known.
    Unreachable,
    /// TLS: mostly another authority than the bundle has.
    Tls,
    /// The connection broke.
    Lost,
    /// No answer in time.
    TimedOut,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 429 or 503.
    Busy,
    /// Another status.
    Status,
    /// A reply that is none, or one that can't be taken in.
    Malformed,
    /// Something that the agent itself needs is missing.
    Local,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Unreachable,
        Self::Tls,
        Self::Lost,
        Self::TimedOut,
        Self::Unauthorized,
        Self::Forbidden,
        Self::Busy,
        Self::Status,
        Self::Malformed,
        Self::Local,
    ];

    /// The kind as it stands in `/status`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "Unreachable",
            Self::Tls => "Tls",
            Self::Lost => "Lost",
            Self::TimedOut => "TimedOut",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::Busy => "Busy",
            Self::Status => "Status",
            Self::Malformed => "Malformed",
            Self::Local => "Local",
        }
    }
}

/// One failure: its kind, and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Its kind.
    pub kind: Kind,
    /// What is wrong and the way out. Never a token or a value.
    pub message: String,
    /// How long the hub asks to wait.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// A failure of which the hub has said nothing.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after: None }
    }

    /// TLS or the connection under it failed while it was set up.
    pub(super) fn handshake(at: &str, error: &io::Error) -> Self {
        let tls = matches!(error.get_ref(), Some(inner) if inner.is::<rustls::Error>());
        if tls {
            let way = "check that the CA bundle is the hub's and that its certificate is for this name";
            return Self::new(Kind::Tls, format!("no TLS with the hub at {at}: {error}; {way}"));
        }
        Self::new(Kind::Lost, format!("the connection to the hub at {at} broke during the TLS handshake: {error}"))
    }

    /// The connection broke during a request.
    pub(super) fn lost(error: &hyper::Error) -> Self {
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        let kind = if error.is_parse() { Kind::Malformed } else { Kind::Lost };
        Self::new(kind, format!("the request to the hub failed: {error}{cause}"))
    }

    /// The hub answered with a status that is none of success; `said` is what it gave as the reason.
    pub(super) fn status(status: StatusCode, said: &str, retry_after: Option<Duration>) -> Self {
        let (kind, way) = match status {
            StatusCode::UNAUTHORIZED => (
                Kind::Unauthorized,
                "the token is read again; if this lasts, the pod may be going or its token's audience is wrong",
            ),
            StatusCode::FORBIDDEN => {
                (Kind::Forbidden, "check that the namespace is enabled and that the pod was injected")
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => (Kind::Busy, "tried again soon"),
            _ => (Kind::Status, "check that the URL is the hub's and that nothing in between answers for it"),
        };
        let said = if said.is_empty() { String::new() } else { format!(": {said}") };
        Self { kind, message: format!("the hub answered {}{said}; {way}", status.as_u16()), retry_after }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_their_kinds() {
        for (status, kind) in [
            (401, Kind::Unauthorized),
            (403, Kind::Forbidden),
            (429, Kind::Busy),
            (503, Kind::Busy),
            (500, Kind::Status),
            (404, Kind::Status),
            (302, Kind::Status),
        ] {
            let failure = Failure::status(StatusCode::from_u16(status).unwrap(), "because", None);
            assert_eq!(failure.kind, kind);
            assert!(failure.message.contains(&status.to_string()) && failure.message.contains("because"));
        }
    }
}
