//! Calls of the API server, with a deadline and errors that name the operation.

use std::sync::Arc;
use std::time::Duration;

/// The time that one call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// A call that failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// The server refused it, or could not be reached.
    #[error("{what} failed")]
    Api {
        /// The operation, with the object's name.
        what: String,
        /// The cause.
        #[source]
        source: Arc<kube::Error>,
    },
    /// No answer came.
    #[error("{what} got no answer in {limit:?}")]
    Timeout {
        /// The operation, with the object's name.
        what: String,
        /// The deadline.
        limit: Duration,
    },
    /// A list has more objects than are read. A part of them does not show the remaining ones.
    #[error("{what}: there are more than {max_objects} objects")]
    TooMany {
        /// The operation.
        what: String,
        /// The maximum number of objects.
        max_objects: u32,
    },
}

impl CallError {
    /// Returns the HTTP status of the answer; `None` if no answer came.
    pub fn code(&self) -> Option<u16> {
        match self.source() {
            Some(kube::Error::Api(status)) => Some(status.code),
            _ => None,
        }
    }

    /// Returns why the server refuses the object, if another attempt with the same one can't help.
    pub fn refusal(&self) -> Option<&str> {
        self.source().and_then(refusal)
    }

    /// Returns whether the object has changed since it was read.
    pub fn is_conflict(&self) -> bool {
        self.source().is_some_and(is_conflict)
    }

    /// Returns the error of the client, if there was an answer.
    fn source(&self) -> Option<&kube::Error> {
        match self {
            Self::Api { source, .. } => Some(source),
            Self::Timeout { .. } | Self::TooMany { .. } => None,
        }
    }
}

/// Returns why the server refuses the object, if another attempt with the same one can't help.
pub fn refusal(error: &kube::Error) -> Option<&str> {
    let kube::Error::Api(status) = error else { return None };
    let has_any = |texts: [&str; 2]| texts.iter().any(|text| status.message.contains(text));
    let too_large = status.code == 500 && has_any(["request is too large", "larger than max"]);
    // Webhooks and policies answer with any code.
    let denied = has_any(["denied the request", "denied request"]);
    (matches!(status.code, 400 | 403 | 413 | 422) || too_large || denied).then_some(status.message.as_str())
}

/// Returns whether the object has changed since it was read, or exists already.
pub fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409) && refusal(error).is_none()
}

/// Waits for a call, within the deadline. `what` is the operation, with the object's name.
pub fn call<T>(
    what: impl FnOnce() -> String,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> impl Future<Output = Result<T, CallError>> {
    // An async function would have room for the call once more.
    call_within(CALL_TIMEOUT, what, call)
}

/// Waits for a call, at most for `limit`.
pub async fn call_within<T>(
    limit: Duration,
    what: impl FnOnce() -> String,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(limit, call).await {
        Ok(result) => result.map_err(|source| CallError::Api { what: what(), source: Arc::new(source) }),
        Err(_) => Err(CallError::Timeout { what: what(), limit }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_not_what_is_tried_again() {
        let webhook = r#"admission webhook "w.example.com" denied the request: no"#;
        let policy = "versionedconfigs.nudge.dev \"shop\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no";
        for (code, message, refused) in [
            (400, "no", true),
            (403, "no", true),
            (413, "Request entity too large: limit is 3145728", true),
            (422, "no", true),
            (500, "etcdserver: request is too large", true),
            (500, "rpc error: code = ResourceExhausted desc = trying to send message larger than max (3 vs. 2)", true),
            // A webhook may answer with any code.
            (401, webhook, true),
            (404, webhook, true),
            (409, webhook, true),
            (418, webhook, true),
            (429, webhook, true),
            (500, webhook, true),
            (401, policy, true),
            (401, "Unauthorized", false),
            (404, "not found", false),
            (409, "the object has been modified; please apply your changes to the latest version and try again", false),
            (429, "too many requests", false),
            (500, r#"Internal error occurred: failed calling webhook "w.example.com": no route"#, false),
            (503, "the server is currently unable to handle the request", false),
        ] {
            let status = kube::core::Status { code, message: message.to_owned(), ..kube::core::Status::default() };
            let error = CallError::Api { what: String::new(), source: Arc::new(kube::Error::Api(Box::new(status))) };
            assert_eq!(error.refusal().is_some(), refused, "{code} {message}");
            assert_eq!(error.is_conflict(), code == 409 && !refused, "{code} {message}");
        }
    }
}
