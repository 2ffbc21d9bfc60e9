//! How requests to the hub fail.

use std::error::Error;
use std::io;
use std::time::Duration;

use hyper::StatusCode;

/// The kind of a failure, which decides about the next attempt. A bounded set: it is also a metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailureKind {
    /// Nothing listens there, or the name can't be resolved.
    Unreachable,
    /// TLS: mostly an authority that is not in the bundle.
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
    /// A reply that can't be understood or taken in.
    Malformed,
    /// The agent lacks a file that it needs.
    Local,
}

impl FailureKind {
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

    /// The kind as in `/status`.
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

/// One failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Its kind.
    pub kind: FailureKind,
    /// What is wrong, and what to do. Never a token or a value.
    pub message: String,
    /// How long the hub asks to wait.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// A failure without `Retry-After`.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after: None }
    }

    /// TLS or the connection under it failed while it was set up.
    pub(super) fn handshake(at: &str, error: &io::Error) -> Self {
        let tls = matches!(error.get_ref(), Some(inner) if inner.is::<rustls::Error>());
        if tls {
            let action = "check that the CA bundle is the hub's and that its certificate is for this name";
            return Self::new(FailureKind::Tls, format!("no TLS with the hub at {at}: {error}; {action}"));
        }
        Self::new(
            FailureKind::Lost,
            format!("the connection to the hub at {at} broke during the TLS handshake: {error}"),
        )
    }

    /// The connection broke during a request.
    pub(super) fn lost(error: &hyper::Error) -> Self {
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        let kind = if error.is_parse() { FailureKind::Malformed } else { FailureKind::Lost };
        Self::new(kind, format!("the request to the hub failed: {error}{cause}"))
    }

    /// The hub answered without success. `message` is its own explanation.
    pub(super) fn status(status: StatusCode, message: &str, retry_after: Option<Duration>) -> Self {
        let (kind, action) = match status {
            StatusCode::UNAUTHORIZED => (
                FailureKind::Unauthorized,
                "the agent reads its token again; if this lasts, the pod is terminating or the token has a wrong audience",
            ),
            StatusCode::FORBIDDEN => {
                (FailureKind::Forbidden, "check that the namespace is enabled and that the pod was injected")
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                (FailureKind::Busy, "the agent tries again soon")
            }
            _ => (FailureKind::Status, "check that the URL is the hub's and that no proxy answers for it"),
        };
        let message = if message.is_empty() { String::new() } else { format!(": {message}") };
        Self { kind, message: format!("the hub answered {}{message}; {action}", status.as_u16()), retry_after }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_a_kind() {
        for (status, kind) in [
            (401, FailureKind::Unauthorized),
            (403, FailureKind::Forbidden),
            (429, FailureKind::Busy),
            (503, FailureKind::Busy),
            (500, FailureKind::Status),
            (404, FailureKind::Status),
            (302, FailureKind::Status),
        ] {
            let failure = Failure::status(StatusCode::from_u16(status).unwrap(), "because", None);
            assert_eq!(failure.kind, kind);
            assert!(failure.message.contains(&status.to_string()) && failure.message.contains("because"));
        }
    }
}
