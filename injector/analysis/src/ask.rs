//! One query of a Prometheus server, within its bounds.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use hyper::{Request, Response, StatusCode};
use nudge_core::analysis::{AnswerError, number};
use nudge_core::outbound::Address;
use nudge_outbound::{Authorities, Bounds, HttpError, Reach, request};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::credentials::Credentials;

/// What one query may cost.
const BOUNDS: Bounds = Bounds { timeout: Duration::from_secs(10), max_bytes: 1024 * 1024 };

/// Why there is no number. Nothing of the answer is repeated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    /// No answer.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The query can't stand in a request.
    #[error("the query can't be sent")]
    Unsendable,
    /// Somewhere else.
    #[error(
        "the server redirects the query (status {0}), and redirects are not followed; name the address that serves"
    )]
    Redirects(u16),
    /// Who asks may not.
    #[error("the server refuses the credentials (status {0})")]
    Credentials(u16),
    /// Another status.
    #[error("the server answers with status {0}")]
    Status(u16),
    /// No number in it.
    #[error(transparent)]
    Answer(#[from] AnswerError),
}

/// Asks one query for one number.
pub(crate) async fn ask(
    address: &Address,
    query: &str,
    credentials: &Credentials,
    reach: &Reach,
    roots: &Authorities,
) -> Result<String, AskError> {
    let roots = credentials.roots.as_ref().unwrap_or(roots);
    read(&request(address, reach, roots, asking(address, query, credentials)?, BOUNDS).await?)
}

fn asking(address: &Address, query: &str, credentials: &Credentials) -> Result<Request<Full<Bytes>>, AskError> {
    let text = format!("query={}&timeout=8s", utf8_percent_encode(query, NON_ALPHANUMERIC));
    let mut request = Request::post(format!("{}/api/v1/query", address.prefix))
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
    if let Some(authorization) = &credentials.authorization {
        request = request.header(AUTHORIZATION, authorization);
    }
    request.body(Full::new(Bytes::from(text))).map_err(|_| AskError::Unsendable)
}

fn read(answer: &Response<Bytes>) -> Result<String, AskError> {
    let status = answer.status();
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(AskError::Credentials(status.as_u16())),
        _ if status.is_redirection() => Err(AskError::Redirects(status.as_u16())),
        // Prometheus gives its errors these.
        StatusCode::OK | StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => Ok(number(answer.body())?),
        _ => Err(AskError::Status(status.as_u16())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"status": "success", "data": {"resultType": "scalar", "result": [1, "0.25"]}}"#;

    fn answered_with(status: u16, body: &'static str) -> Result<String, AskError> {
        read(&Response::builder().status(status).body(Bytes::from(body)).unwrap())
    }

    #[test]
    fn a_query_is_posted_below_the_prefix() {
        let address = Address::parse("http://prometheus.example.com/prefix").unwrap();
        let request = asking(&address, "up{a=\"b&c\"}", &Credentials::default()).unwrap();
        assert_eq!((request.method().as_str(), request.uri().path()), ("POST", "/prefix/api/v1/query"));
        assert!(!request.headers().contains_key(AUTHORIZATION));
    }

    #[test]
    fn a_number_is_read_and_nothing_else_is() {
        assert_eq!(answered_with(200, GOOD).unwrap(), "0.25");
        assert!(matches!(answered_with(302, GOOD), Err(AskError::Redirects(302))));
        assert!(matches!(answered_with(401, GOOD), Err(AskError::Credentials(401))));
        assert!(matches!(answered_with(500, GOOD), Err(AskError::Status(500))));
        let bad = r#"{"status": "error", "errorType": "bad_data"}"#;
        assert!(matches!(answered_with(400, bad), Err(AskError::Answer(AnswerError::Refused("bad_data")))));
        assert!(matches!(answered_with(200, "<html>"), Err(AskError::Answer(AnswerError::Foreign))));
    }
}
