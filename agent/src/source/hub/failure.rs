//! How requests to the hub fail.

use std::error::Error;
use std::io;
use std::time::Duration;

use hyper::StatusCode;
use nudge_protocol::named_enum;

named_enum! {
    /// The kind of a failure, which decides about the next attempt. A bounded set, as it is also a metric's label.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum FailureKind {
        /// Nothing listens there, or the name can't be resolved.
        Unreachable,
        /// TLS failed: mostly the authority is not in the bundle.
        Tls,
        /// The connection broke.
        Lost,
        /// There was no answer in time.
        TimedOut,
        /// The hub answered 401.
        Unauthorized,
        /// The hub answered 403.
        Forbidden,
        /// The hub answered 429 or 503.
        Busy,
        /// The hub answered with another status.
        Status,
        /// The reply can't be understood or taken in.
        Malformed,
        /// The agent lacks a file that it needs.
        Local,
    }
}

/// A failure of a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct HubFailure {
    /// The kind, which decides about the next attempt.
    pub kind: FailureKind,
    /// The fault and its remedy. The message never holds a token or a value.
    pub message: String,
    /// The wait that the hub requests.
    pub retry_after: Option<Duration>,
}

impl HubFailure {
    /// Creates a failure without `Retry-After`.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after: None }
    }

    /// Creates the failure of an answer that did not come in time.
    pub(super) fn timed_out(message: String) -> Self {
        Self::new(FailureKind::TimedOut, message)
    }

    /// Creates the failure of TLS, or of the connection under it, during the handshake.
    pub(super) fn handshake(authority: &str, error: &io::Error) -> Self {
        let tls = matches!(error.get_ref(), Some(inner) if inner.is::<rustls::Error>());
        if tls {
            let action = "check that the CA bundle is the hub's and that its certificate is for this name";
            return Self::new(FailureKind::Tls, format!("no TLS with the hub at {authority}: {error}; {action}"));
        }
        Self::new(
            FailureKind::Lost,
            format!("the connection to the hub at {authority} broke during the TLS handshake: {error}"),
        )
    }

    /// Creates the failure of a connection that broke during a request.
    pub(super) fn lost(error: &hyper::Error) -> Self {
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        let kind = if error.is_parse() { FailureKind::Malformed } else { FailureKind::Lost };
        Self::new(kind, format!("the request to the hub failed: {error}{cause}"))
    }

    /// Creates the failure of an answer without success. `message` is the hub's own explanation.
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
            let failure = HubFailure::status(StatusCode::from_u16(status).unwrap(), "because", None);
            assert_eq!(failure.kind, kind);
            assert!(failure.message.contains(&status.to_string()) && failure.message.contains("because"));
        }
    }
}
