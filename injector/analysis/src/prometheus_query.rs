//! One query of a Prometheus server, within bounds.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use hyper::{Request, Response, StatusCode};
use nudge_core::analysis::{AnswerError, parse_number};
use nudge_core::outbound::Address;
use nudge_outbound::{Authorities, Bounds, HttpError, Reach};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::credentials::Credentials;

/// The bounds of one query.
const BOUNDS: Bounds = Bounds { timeout: Duration::from_secs(10), max_bytes: 1024 * 1024 };

/// The reason why there is no number. No message repeats text of the answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QueryError {
    /// There was no answer.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The query can't be part of a request.
    #[error("the query can't be sent")]
    Unsendable,
    /// The server redirects the query.
    #[error(
        "the server redirects the query (status {0}), and redirects are not followed; name the address that serves"
    )]
    Redirects(u16),
    /// The server refuses the credentials.
    #[error("the server refuses the credentials (status {0})")]
    Credentials(u16),
    /// The server answers with another status.
    #[error("the server answers with status {0}")]
    Status(u16),
    /// The answer holds no number.
    #[error(transparent)]
    Answer(#[from] AnswerError),
}

/// Sends one query, and reads one number from the answer.
pub(crate) async fn query_number(
    address: &Address,
    query: &str,
    credentials: &Credentials,
    reach: &Reach,
    roots: &Authorities,
) -> Result<String, QueryError> {
    let roots = credentials.roots.as_ref().unwrap_or(roots);
    let request = query_request(address, query, credentials)?;
    read_number(&nudge_outbound::request(address, reach, roots, request, BOUNDS).await?)
}

fn query_request(
    address: &Address,
    query: &str,
    credentials: &Credentials,
) -> Result<Request<Full<Bytes>>, QueryError> {
    let text = format!("query={}&timeout=8s", utf8_percent_encode(query, NON_ALPHANUMERIC));
    let mut request = Request::post(format!("{}/api/v1/query", address.prefix))
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
    if let Some(authorization) = &credentials.authorization {
        request = request.header(AUTHORIZATION, authorization);
    }
    request.body(Full::new(Bytes::from(text))).map_err(|_| QueryError::Unsendable)
}

fn read_number(answer: &Response<Bytes>) -> Result<String, QueryError> {
    let status = answer.status();
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(QueryError::Credentials(status.as_u16())),
        _ if status.is_redirection() => Err(QueryError::Redirects(status.as_u16())),
        // Prometheus answers with these statuses if a query fails.
        StatusCode::OK | StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => Ok(parse_number(answer.body())?),
        _ => Err(QueryError::Status(status.as_u16())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"status": "success", "data": {"resultType": "scalar", "result": [1, "0.25"]}}"#;

    fn read_answer(status: u16, body: &'static str) -> Result<String, QueryError> {
        read_number(&Response::builder().status(status).body(Bytes::from(body)).unwrap())
    }

    #[test]
    fn a_query_is_posted_below_the_prefix() {
        let address = Address::parse("http://prometheus.example.com/prefix").unwrap();
        let request = query_request(&address, "up{a=\"b&c\"}", &Credentials::default()).unwrap();
        assert_eq!((request.method().as_str(), request.uri().path()), ("POST", "/prefix/api/v1/query"));
        assert!(!request.headers().contains_key(AUTHORIZATION));
    }

    #[test]
    fn a_number_is_read_and_nothing_else_is() {
        assert_eq!(read_answer(200, GOOD).unwrap(), "0.25");
        assert!(matches!(read_answer(302, GOOD), Err(QueryError::Redirects(302))));
        assert!(matches!(read_answer(401, GOOD), Err(QueryError::Credentials(401))));
        assert!(matches!(read_answer(500, GOOD), Err(QueryError::Status(500))));
        let bad = r#"{"status": "error", "errorType": "bad_data"}"#;
        assert!(matches!(read_answer(400, bad), Err(QueryError::Answer(AnswerError::Refused("bad_data")))));
        assert!(matches!(read_answer(200, "<html>"), Err(QueryError::Answer(AnswerError::Foreign))));
    }
}
