//! Refusals of requests: the status, the reason for programs and the message for people.

use std::time::Duration;

use hyper::StatusCode;
use nudge_protocol::ErrorBody;

use crate::content::NotExpressible;
use crate::notify::WebhookError;

/// A refused request. The text never holds a value or a token.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestRefusal {
    /// The request can't be understood.
    #[error("{0}")]
    BadRequest(String),
    /// The token is missing or wrong.
    #[error(
        "this needs the header 'Authorization: Bearer TOKEN' with the token from MY_CONFIG_TOKEN or the file that MY_CONFIG_TOKEN_FILE names"
    )]
    Unauthorized,
    /// The client is not in this pod.
    #[error("only the pod's own containers may request this, from the pod's own address or loopback")]
    Foreign,
    /// There is no such path.
    #[error("there is no such path; there are /config, /config/KEY, /status, /hooks, /healthz, /readyz and /metrics")]
    NoSuchPath,
    /// There is no such key.
    #[error("there is no such key in the dictionary; GET /config has them all")]
    NoSuchKey,
    /// No container is asked about this version.
    #[error("no container is being asked about this version now; GET /config has the one that is served")]
    NoSuchCandidate,
    /// There is no such webhook.
    #[error("there is no webhook with this id; GET /hooks lists them")]
    NoSuchHook,
    /// The path takes other methods.
    #[error("this path takes {0} only")]
    MethodNotAllowed(&'static str),
    /// Path and query are too long.
    #[error("path and query have more than {0} bytes")]
    TargetTooLong(usize),
    /// The body is too long.
    #[error("the body has more than {0} bytes")]
    BodyTooLarge(usize),
    /// The body did not come in time.
    #[error("the body did not arrive within {} seconds", .0.as_secs())]
    BodyTooSlow(Duration),
    /// The format can't express the dictionary.
    #[error("{0}")]
    NotExpressible(NotExpressible),
    /// Nothing has been read from the source yet.
    #[error("there is no configuration yet; ask again in a second")]
    NotReady,
    /// Too many requests wait already.
    #[error("{0} requests wait for a change already; ask again in a second, or without ?wait=")]
    TooManyWaiting(usize),
    /// The webhook can't be taken.
    #[error("{0}")]
    Hook(WebhookError),
}

impl RequestRefusal {
    /// Returns the reply's status, and its reason for programs.
    fn code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::BadRequest(_) => (StatusCode::BAD_REQUEST, "BadRequest"),
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "Unauthorized"),
            Self::Foreign => (StatusCode::FORBIDDEN, "Forbidden"),
            Self::NoSuchPath | Self::NoSuchKey | Self::NoSuchCandidate | Self::NoSuchHook => {
                (StatusCode::NOT_FOUND, "NotFound")
            }
            Self::MethodNotAllowed(_) => (StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
            Self::TargetTooLong(_) => (StatusCode::URI_TOO_LONG, "TargetTooLong"),
            Self::BodyTooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "BodyTooLarge"),
            Self::BodyTooSlow(_) => (StatusCode::REQUEST_TIMEOUT, "RequestTimeout"),
            Self::NotExpressible(_) => (StatusCode::NOT_ACCEPTABLE, "NotExpressible"),
            Self::NotReady => (StatusCode::SERVICE_UNAVAILABLE, "NotReady"),
            Self::TooManyWaiting(_) => (StatusCode::SERVICE_UNAVAILABLE, "TooManyWaiting"),
            Self::Hook(WebhookError::Url(_)) => (StatusCode::UNPROCESSABLE_ENTITY, "HookNotAllowed"),
            Self::Hook(WebhookError::TooMany { .. }) => (StatusCode::TOO_MANY_REQUESTS, "TooManyHooks"),
        }
    }

    /// Returns the reply's status.
    pub fn status(&self) -> StatusCode {
        self.code().0
    }

    /// Returns the reply's body.
    pub fn body(&self) -> ErrorBody {
        ErrorBody { error: self.code().1.to_owned(), message: self.to_string() }
    }
}
