//! One request to a container over plain HTTP: a webhook, a question, or a page that is read.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::http::request::Builder;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use super::WebhookTarget;

/// The maximum time for the head of an answer.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum time for the body of an answer after its head.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// The value of the header `User-Agent`.
const USER_AGENT: &str = concat!("nudge-agent/", env!("CARGO_PKG_VERSION"));

/// The reason why an event was not delivered, or a page was not read.
#[derive(Debug, thiserror::Error)]
pub enum DeliverError {
    /// The target can't be reached.
    #[error("the target can't be reached: {0}")]
    Connect(io::Error),
    /// The connection broke, or the target speaks another protocol.
    #[error("the request failed: {0}")]
    Http(#[from] hyper::Error),
    /// The target did not answer in time.
    #[error("the target did not answer within {} seconds", ATTEMPT_TIMEOUT.as_secs())]
    TimedOut,
    /// The body did not end in time.
    #[error("the answer did not end within {} seconds", BODY_TIMEOUT.as_secs())]
    Slow,
    /// The target answered with another status than 2xx.
    #[error("the target answered {0}; only 2xx counts, and redirects are not followed")]
    Status(StatusCode),
    /// The answer is too long.
    #[error("the answer has more than {0} bytes")]
    TooLong(usize),
}

/// Returns the beginning of a request to the target.
pub(super) fn request(method: Method, target: &WebhookTarget) -> Builder {
    let request = Request::builder().method(method).uri(target.path()).header(header::HOST, target.host());
    request.header(header::USER_AGENT, USER_AGENT).header(header::CONNECTION, "close")
}

/// Sends the request, and passes the parts of the answer's body to `take`: as many bytes as `max_bytes` says by the
/// status, and no body if it says 0. Returns the status, and how the body ended if it was read.
pub(super) async fn exchange(
    target: &WebhookTarget,
    request: Result<Request<Full<Bytes>>, hyper::http::Error>,
    max_bytes: impl FnOnce(StatusCode) -> usize,
    take: &mut (dyn FnMut(&[u8]) + Send),
) -> Result<(StatusCode, Option<Result<(), DeliverError>>), DeliverError> {
    let request = request.map_err(|error| DeliverError::Connect(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
    let deadline = Instant::now() + ATTEMPT_TIMEOUT;
    let timed_out = |_| DeliverError::TimedOut;
    let connect = TcpStream::connect(target.addresses());
    let stream = timeout_at(deadline, connect).await.map_err(timed_out)?.map_err(DeliverError::Connect)?;
    let (mut sender, connection) =
        http1::Builder::new().max_buf_size(16 * 1024).handshake(TokioIo::new(stream)).await?;
    let reply = async {
        let (head, body) = timeout_at(deadline, sender.send_request(request)).await.map_err(timed_out)??.into_parts();
        let body = match max_bytes(head.status) {
            0 => None,
            max_bytes => {
                let read = timeout(BODY_TIMEOUT, read_body(body, max_bytes, take));
                Some(read.await.unwrap_or(Err(DeliverError::Slow)))
            }
        };
        Ok((head.status, body))
    };
    tokio::pin!(reply);
    tokio::select! {
        biased;
        reply = &mut reply => reply,
        // The connection drives the request. Whether it ends well or with a fault, the reply says so.
        _ = connection => reply.await,
    }
}

async fn read_body(
    mut body: Incoming,
    max_bytes: usize,
    take: &mut (dyn FnMut(&[u8]) + Send),
) -> Result<(), DeliverError> {
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let Ok(part) = frame?.into_data() else { continue };
        length += part.len();
        if length > max_bytes {
            return Err(DeliverError::TooLong(max_bytes));
        }
        take(&part);
    }
    Ok(())
}

/// Reads a page of at most `max_bytes`, and passes its parts to `take`.
pub(super) async fn get(
    target: &WebhookTarget,
    max_bytes: usize,
    take: &mut (dyn FnMut(&[u8]) + Send),
) -> Result<(), DeliverError> {
    let request = request(Method::GET, target).body(Full::default());
    let max_bytes = |status: StatusCode| if status.is_success() { max_bytes } else { 0 };
    let (status, body) = exchange(target, request, max_bytes, take).await?;
    body.unwrap_or(Err(DeliverError::Status(status)))
}

#[cfg(test)]
mod tests {
    use nudge_protocol::webhook_url::TargetPolicy;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    const HEAD: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
    const MAX_BYTES: usize = 64 * 1024;

    /// Reads a page of a server that sends `text`, and then `part` again and again after `pause`; no end without a
    /// part. Returns the number of bytes that were passed on as well.
    async fn read(text: String, part: Vec<u8>, pause: Duration) -> (Result<(), DeliverError>, usize) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/metrics", listener.local_addr().unwrap()).parse().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
            stream.write_all(text.as_bytes()).await.unwrap();
            while !part.is_empty() && stream.write_all(&part).await.is_ok() {
                tokio::time::sleep(pause).await;
            }
        });
        let mut length = 0;
        let target = TargetPolicy::default().check(url).unwrap();
        let result = get(&target, MAX_BYTES, &mut |part| length += part.len()).await;
        server.await.unwrap();
        (result, length)
    }

    #[tokio::test]
    async fn a_page_has_a_largest_size() {
        let whole = "a".repeat(MAX_BYTES);
        let (result, length) = read(format!("{HEAD}{whole}"), Vec::new(), Duration::ZERO).await;
        assert!(result.is_ok() && length == MAX_BYTES, "{result:?}");
        for part in [b"a".repeat(16 * 1024), b"a".to_vec()] {
            let endless = read(format!("{HEAD}{}", &whole[1..]), part, Duration::ZERO).await;
            assert!(
                matches!(endless.0, Err(DeliverError::TooLong(MAX_BYTES))) && endless.1 <= MAX_BYTES,
                "{endless:?}"
            );
        }
        let long = read(HEAD.to_owned() + &whole + "a", Vec::new(), Duration::ZERO).await.0;
        assert!(matches!(long, Err(DeliverError::TooLong(_))), "{long:?}");
    }

    #[tokio::test]
    async fn a_page_that_comes_by_single_bytes_ends_in_time() {
        let (result, _) = read(HEAD.to_owned(), b"a".to_vec(), Duration::from_millis(200)).await;
        assert!(matches!(result, Err(DeliverError::Slow)), "{result:?}");
    }

    #[tokio::test]
    async fn a_redirect_is_not_followed_and_a_cut_page_is_none() {
        let redirect =
            "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n".to_owned();
        let result = read(redirect, Vec::new(), Duration::ZERO).await;
        assert!(matches!(result, (Err(DeliverError::Status(StatusCode::FOUND)), 0)), "{result:?}");
        let cut = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nname 1".to_owned();
        let result = read(cut, Vec::new(), Duration::ZERO).await;
        assert!(matches!(result, (Err(DeliverError::Http(_)), 6)), "{result:?}");
    }
}
