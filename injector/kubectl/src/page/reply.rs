//! Answers, each with the headers that keep the page to itself.

use std::convert::Infallible;

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use hyper::header::HeaderValue;
use hyper::{Response, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};

use crate::failure::Failure;

/// The body of an answer: whole, or a stream.
pub(crate) type PageBody = UnsyncBoxBody<Bytes, Infallible>;

pub(super) type PageAnswer = Result<Response<PageBody>, PageRefusal>;

/// The headers of every answer. With them, a browser loads nothing from elsewhere, runs nothing from the text of the
/// page, shows the page in no frame, keeps nothing, and does not name the page to other sites.
const HEADERS: [(&str, &str); 7] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; \
         form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    ("referrer-policy", "no-referrer"),
    ("x-content-type-options", "nosniff"),
    ("cache-control", "no-store"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("x-frame-options", "DENY"),
];

fn answer(status: StatusCode, kind: &'static str, body: PageBody) -> Response<PageBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert("content-type", HeaderValue::from_static(kind));
    response
}

/// Answers with a file of the page.
pub(crate) fn file(kind: &'static str, content: &'static str) -> Response<PageBody> {
    answer(StatusCode::OK, kind, Full::new(Bytes::from_static(content.as_bytes())).boxed_unsync())
}

/// Converts a value to JSON without fields that are null.
pub(super) fn to_json(value: &impl Serialize) -> Value {
    fn drop_nulls(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.retain(|_, field| !field.is_null());
                fields.values_mut().for_each(drop_nulls);
            }
            Value::Array(items) => items.iter_mut().for_each(drop_nulls),
            _ => {}
        }
    }
    // The conversion can't fail, because the keys of all maps are strings.
    let mut value = serde_json::to_value(value).unwrap_or_default();
    drop_nulls(&mut value);
    value
}

/// Answers with a JSON document.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response<PageBody> {
    answer(status, "application/json", Full::new(Bytes::from(to_json(value).to_string())).boxed_unsync())
}

/// A refusal, which is an answer, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageRefusal {
    status: StatusCode,
    message: String,
}

impl PageRefusal {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }
}

impl From<Failure> for PageRefusal {
    fn from(failure: Failure) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, failure.message)
    }
}

impl From<PageRefusal> for Response<PageBody> {
    fn from(PageRefusal { status, message }: PageRefusal) -> Self {
        json(status, &json!({"error": message}))
    }
}

/// Answers with JSON documents, a line each, as they come.
pub(crate) fn lines(lines: impl Stream<Item = Bytes> + Send + 'static) -> Response<PageBody> {
    let frames = lines.map(|line| Ok(Frame::data(line)));
    answer(StatusCode::OK, "application/x-ndjson", StreamBody::new(frames).boxed_unsync())
}
