//! One query of a Prometheus server, within its bounds.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use nudge_core::analysis::{Address, AnswerError, Guarded, number};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::RootCertStore;
use tokio::time::timeout;

use crate::connect::{ConnectError, connect};
use crate::credentials::Credentials;

/// How long one query may take, with all that belongs to it.
const LIMIT: Duration = Duration::from_secs(10);
/// The longest answer.
const MOST: usize = 1024 * 1024;

/// Why there is no number. Nothing of the answer is repeated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// It took too long.
    #[error("no answer within {} s", LIMIT.as_secs())]
    TooSlow,
    /// The connection ended, or what came was no HTTP.
    #[error("the server's answer is no HTTP, or ended early")]
    Http(#[source] hyper::Error),
    /// Too long.
    #[error("the answer has more than {MOST} bytes")]
    TooLong,
    /// It has no text, or ended early.
    #[error("the server's answer ended early")]
    Body,
    /// Somewhere else.
    #[error("the server redirects the query (status {0}), which is not followed")]
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
    guarded: &Guarded,
    roots: &Arc<RootCertStore>,
) -> Result<String, AskError> {
    let asked = async {
        let roots = credentials.roots.as_ref().unwrap_or(roots);
        let stream = connect(address, guarded, Arc::clone(roots)).await?;
        exchange(TokioIo::new(stream), address, query, credentials).await
    };
    timeout(LIMIT, asked).await.map_err(|_| AskError::TooSlow)?
}

async fn exchange<S>(stream: S, address: &Address, query: &str, credentials: &Credentials) -> Result<String, AskError>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send,
{
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .max_buf_size(64 * 1024)
        .handshake(stream)
        .await
        .map_err(AskError::Http)?;
    let text = format!("query={}&timeout=8s", utf8_percent_encode(query, NON_ALPHANUMERIC));
    let mut request = Request::post(format!("{}/api/v1/query", address.prefix))
        .header(HOST, address.authority())
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .header(USER_AGENT, concat!("nudge-injector/", env!("CARGO_PKG_VERSION")));
    if let Some(authorization) = &credentials.authorization {
        request = request.header(AUTHORIZATION, authorization);
    }
    // The address was read from what can stand in a request.
    let request = request.body(Full::new(Bytes::from(text))).map_err(|_| AskError::Body)?;
    let answered = async {
        let answer = sender.send_request(request).await.map_err(AskError::Http)?;
        let status = answer.status();
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Err(AskError::Credentials(status.as_u16())),
            _ if status.is_redirection() => return Err(AskError::Redirects(status.as_u16())),
            // Prometheus gives its errors these.
            StatusCode::OK | StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => {}
            _ => return Err(AskError::Status(status.as_u16())),
        }
        let body = Limited::new(answer.into_body(), MOST).collect().await;
        let too_long = |error: Box<dyn std::error::Error + Send + Sync>| {
            if error.is::<LengthLimitError>() { AskError::TooLong } else { AskError::Body }
        };
        Ok(number(&body.map_err(too_long)?.to_bytes())?)
    };
    // The connection moves the bytes, and ends with the answer.
    tokio::pin!(connection);
    tokio::pin!(answered);
    tokio::select! {
        biased;
        answer = &mut answered => answer,
        ended = &mut connection => match ended {
            Ok(()) => answered.await,
            Err(error) => Err(AskError::Http(error)),
        },
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    const GOOD: &str = r#"{"status": "success", "data": {"resultType": "scalar", "result": [1, "0.25"]}}"#;

    /// What comes of an answer that this server gives, and what it was asked.
    async fn asked<F: Future<Output = ()> + Send + 'static>(
        serve: impl FnOnce(DuplexStream) -> F + Send + 'static,
    ) -> Result<String, AskError> {
        let (client, server) = duplex(1024);
        tokio::spawn(serve(server));
        let address = Address::parse("http://prometheus.example.com/prefix").unwrap();
        let nobody = Credentials::default();
        let query = exchange(TokioIo::new(client), &address, "up{a=\"b&c\"}", &nobody);
        timeout(LIMIT, query).await.map_err(|_| AskError::TooSlow)?
    }

    fn answer(status: &str, headers: &str, body: &str) -> String {
        format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
    }

    async fn answered_with(answer: String) -> Result<String, AskError> {
        asked(move |mut server: DuplexStream| async move {
            let mut request = vec![0; 8192];
            let read = server.read(&mut request).await.unwrap();
            let request = String::from_utf8_lossy(&request[..read]).into_owned();
            assert!(request.starts_with("POST /prefix/api/v1/query HTTP/1.1\r\nhost: prometheus.example.com\r\n"));
            let _ = server.write_all(answer.as_bytes()).await;
            // It stays open.
            let _ = server.read(&mut [0; 1]).await;
        })
        .await
    }

    #[tokio::test(start_paused = true)]
    async fn a_number_is_read() {
        assert_eq!(answered_with(answer("200 OK", "", GOOD)).await.unwrap(), "0.25");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_else_is() {
        let elsewhere = answer("302 Found", "location: http://evil.example.com/\r\n", GOOD);
        assert!(matches!(answered_with(elsewhere).await, Err(AskError::Redirects(302))));
        assert!(matches!(answered_with(answer("401 Unauthorized", "", GOOD)).await, Err(AskError::Credentials(401))));
        assert!(matches!(answered_with(answer("500 Oh", "", GOOD)).await, Err(AskError::Status(500))));
        assert!(matches!(answered_with("SSH-2.0-OpenSSH\r\n".to_owned()).await, Err(AskError::Http(_))));
        let bad = answer("400 Bad", "", r#"{"status": "error", "errorType": "bad_data"}"#);
        assert!(matches!(answered_with(bad).await, Err(AskError::Answer(AnswerError::Refused("bad_data")))));
        assert!(matches!(
            answered_with(answer("200 OK", "", "<html>")).await,
            Err(AskError::Answer(AnswerError::Foreign))
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_without_end_is_cut_off() {
        let endless = asked(async |mut server: DuplexStream| {
            let _ = server.read(&mut [0; 8192]).await;
            let _ = server.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
            while server.write_all(&[b'a'; 1024]).await.is_ok() {}
        });
        assert!(matches!(endless.await, Err(AskError::TooLong)));
        let headers = asked(async |mut server: DuplexStream| {
            let _ = server.read(&mut [0; 8192]).await;
            let _ = server.write_all(b"HTTP/1.1 200 OK\r\n").await;
            while server.write_all(b"a: b\r\n").await.is_ok() {}
        });
        assert!(matches!(headers.await, Err(AskError::Http(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_is_not_waited_for() {
        let slow = asked(async |mut server: DuplexStream| {
            let _ = server.read(&mut [0; 8192]).await;
            let text = answer("200 OK", "", GOOD);
            for byte in text.bytes() {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if server.write_all(&[byte]).await.is_err() {
                    return;
                }
            }
        });
        assert!(matches!(slow.await, Err(AskError::TooSlow)));
    }
}
