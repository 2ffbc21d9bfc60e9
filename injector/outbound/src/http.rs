//! Requests over HTTP/1.1, and their whole answers, within limits.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::header::{HOST, HeaderValue, USER_AGENT};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use nudge_core::outbound::Address;
use tokio::time::timeout;

use crate::authorities::Authorities;
use crate::connect::{ConnectError, Reach, Stream, connect};

/// The maximum size of an answer's headers.
const MAX_HEADER_BYTES: usize = 64 * 1024;

/// The bounds of one answer.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The maximum time for the connection and the answer.
    pub timeout: Duration,
    /// The maximum length of the body.
    pub max_bytes: usize,
}

/// The reason why there is no answer. No message repeats text from the server.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The answer took too long.
    #[error("the server did not answer within {} s", .0.as_secs())]
    TooSlow(Duration),
    /// The connection ended, or the server did not speak HTTP.
    #[error("the server's answer is not HTTP, or ended early")]
    Http(#[source] hyper::Error),
    /// The body is too long.
    #[error("the answer has more than {0} bytes")]
    TooLong(usize),
    /// The body ended early.
    #[error("the server's answer ended early")]
    Body,
    /// The address can't stand in a request.
    #[error("a request can't have the value of {0}")]
    Host(String),
}

/// Sends a request over a separate connection. The URI of the request is a path. Returns an answer of any status,
/// including redirects.
pub async fn request(
    address: &Address,
    reach: &Reach,
    roots: &Authorities,
    request: Request<Full<Bytes>>,
    bounds: Bounds,
) -> Result<Response<Bytes>, HttpError> {
    let answer = async {
        let stream = connect(address, reach, roots).await?;
        exchange(stream, address, request, bounds.max_bytes).await
    };
    timeout(bounds.timeout, answer).await.map_err(|_| HttpError::TooSlow(bounds.timeout))?
}

/// Sends a request over an existing connection, without a time limit.
pub async fn exchange(
    stream: impl Stream,
    address: &Address,
    mut request: Request<Full<Bytes>>,
    max_bytes: usize,
) -> Result<Response<Bytes>, HttpError> {
    let host = HeaderValue::try_from(address.authority()).map_err(|_| HttpError::Host(address.host.clone()))?;
    request.headers_mut().insert(HOST, host);
    let agent = HeaderValue::from_static(concat!("nudge/", env!("CARGO_PKG_VERSION")));
    request.headers_mut().entry(USER_AGENT).or_insert(agent);
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .max_buf_size(MAX_HEADER_BYTES)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(HttpError::Http)?;
    let answer = async {
        let (parts, body) = sender.send_request(request).await.map_err(HttpError::Http)?.into_parts();
        let too_long = |error: Box<dyn std::error::Error + Send + Sync>| {
            if error.is::<LengthLimitError>() { HttpError::TooLong(max_bytes) } else { HttpError::Body }
        };
        let body = Limited::new(body, max_bytes).collect().await.map_err(too_long)?.to_bytes();
        Ok(Response::from_parts(parts, body))
    };
    // The connection transports the bytes, and ends with the answer.
    tokio::pin!(connection);
    tokio::pin!(answer);
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        end = &mut connection => match end {
            Ok(()) => answer.await,
            Err(error) => Err(HttpError::Http(error)),
        },
    }
}

/// Returns a value of a header that logs do not show; `None` if a header can't have it.
pub fn sensitive(value: &[u8]) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_bytes(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    const BOUNDS: Bounds = Bounds { timeout: Duration::from_secs(10), max_bytes: 1024 * 1024 };

    /// Returns the outcome of a request to a server that gives this answer.
    async fn asked<F: Future<Output = ()> + Send + 'static>(
        serve: impl FnOnce(DuplexStream) -> F + Send + 'static,
    ) -> Result<Response<Bytes>, HttpError> {
        let (client, server) = duplex(1024);
        tokio::spawn(serve(server));
        let address = Address::parse("http://git.example.com:8080").unwrap();
        let get = Request::get("/info/refs").body(Full::default()).unwrap();
        let answered = exchange(client, &address, get, BOUNDS.max_bytes);
        timeout(BOUNDS.timeout, answered).await.map_err(|_| HttpError::TooSlow(BOUNDS.timeout))?
    }

    fn answer(status: &str, headers: &str, body: &str) -> String {
        format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
    }

    async fn answered_with(answer: String) -> Result<Response<Bytes>, HttpError> {
        asked(move |mut server: DuplexStream| async move {
            let mut request = vec![0; 8192];
            let read = server.read(&mut request).await.unwrap();
            let request = String::from_utf8_lossy(&request[..read]).into_owned();
            assert!(request.starts_with("GET /info/refs HTTP/1.1\r\n"), "{request}");
            assert!(request.contains("host: git.example.com:8080\r\n"), "{request}");
            let _ = server.write_all(answer.as_bytes()).await;
            // The connection stays open.
            let _ = server.read(&mut [0; 1]).await;
        })
        .await
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_of_any_status_is_given_and_no_redirect_is_followed() {
        let good = answered_with(answer("200 OK", "", "content")).await.unwrap();
        assert_eq!((good.status().as_u16(), good.body().as_ref()), (200, b"content".as_slice()));
        let moved = answered_with(answer("302 Found", "location: http://evil.example.com/\r\n", "")).await.unwrap();
        assert_eq!(moved.status().as_u16(), 302);
        assert!(matches!(answered_with("SSH-2.0-OpenSSH\r\n".to_owned()).await, Err(HttpError::Http(_))));
        assert!(matches!(
            answered_with("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\na".to_owned()).await,
            Err(HttpError::TooSlow(_))
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_without_end_is_cut_off() {
        let endless = asked(async |mut server: DuplexStream| {
            let _ = server.read(&mut [0; 8192]).await;
            let _ = server.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
            while server.write_all(&[b'a'; 1024]).await.is_ok() {}
        });
        assert!(matches!(endless.await, Err(HttpError::TooLong(_))));
        let headers = asked(async |mut server: DuplexStream| {
            let _ = server.read(&mut [0; 8192]).await;
            let _ = server.write_all(b"HTTP/1.1 200 OK\r\n").await;
            while server.write_all(b"a: b\r\n").await.is_ok() {}
        });
        assert!(matches!(headers.await, Err(HttpError::Http(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_is_not_waited_for() {
        let slow = asked(async |mut server: DuplexStream| {
            let _ = server.read(&mut [0; 8192]).await;
            let text = answer("200 OK", "", "content");
            for byte in text.bytes() {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if server.write_all(&[byte]).await.is_err() {
                    return;
                }
            }
        });
        assert!(matches!(slow.await, Err(HttpError::TooSlow(_))));
    }
}
