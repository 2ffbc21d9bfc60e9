//! Bytes over TLS, for clients that no HTTP library would be: slow, malformed, silent.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::{Access, Reply, agent::tls};

/// A TLS connection.
pub struct Raw {
    stream: TlsStream<TcpStream>,
}

impl Raw {
    /// Connects the way the agent's child would.
    pub async fn open(access: &Access) -> Result<Self> {
        let stream = TcpStream::connect(access.address).await.with_context(|| format!("can't connect: {access:?}"))?;
        Self::over(stream, access.address.ip(), &tls::trusting(&access.authority)?).await
    }

    /// Speaks TLS over a connection to `server` that is there already.
    pub async fn over(stream: TcpStream, server: IpAddr, tls: &Arc<ClientConfig>) -> Result<Self> {
        stream.set_nodelay(true)?;
        let tls = TlsConnector::from(Arc::clone(tls));
        let stream = tls.connect(ServerName::from(server), stream).await.context("no TLS")?;
        Ok(Self { stream })
    }

    /// Returns the connection below TLS.
    pub fn tcp(&self) -> &TcpStream {
        self.stream.get_ref().0
    }

    /// Returns the TLS connection, to be used in another way.
    pub fn into_inner(self) -> TlsStream<TcpStream> {
        self.stream
    }

    /// Returns whether the server has sent nothing so far.
    pub async fn is_silent(&self) -> bool {
        // The runtime takes in what has come.
        tokio::task::yield_now().await;
        timeout(Duration::ZERO, self.tcp().peek(&mut [0])).await.is_err()
    }

    /// Sends bytes at once.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.stream.write_all(bytes.as_ref()).await?;
        self.stream.flush().await.context("can't send")
    }

    /// Reads one reply; its body has the length that its head names.
    pub async fn reply(&mut self) -> Result<Reply> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.stream.read_u8().await.context("no reply")?);
        }
        let (status, headers) = parse_head(&head)?;
        let length =
            headers.get(CONTENT_LENGTH).map_or(Ok(0), |length| length.to_str()?.parse().context("its length"))?;
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await.context("the reply broke off")?;
        Ok(Reply { status, headers, body: Bytes::from(body) })
    }

    /// Reads until the server ends the connection, however it does that.
    pub async fn ended(&mut self) {
        let mut rest = [0; 4096];
        while self.stream.read(&mut rest).await.is_ok_and(|read| read > 0) {}
    }
}

/// Returns the head of a request with the token; `line` is such as `GET /config`, `headers` are whole lines.
pub fn head(access: &Access, line: &str, headers: &[&str]) -> String {
    let Access { address, token, .. } = access;
    let mut head = format!("{line} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n");
    for header in headers {
        head += header;
        head += "\r\n";
    }
    head + "\r\n"
}

fn parse_head(head: &[u8]) -> Result<(StatusCode, HeaderMap)> {
    let text = str::from_utf8(head).context("the reply's head is not text")?;
    let mut lines = text.lines();
    let mut first = lines.next().unwrap_or_default().split(' ');
    ensure!(first.next() == Some("HTTP/1.1"), "this is not HTTP: {text}");
    let status = first.next().context("no status")?.parse()?;
    let mut headers = HeaderMap::new();
    for line in lines.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').with_context(|| format!("this is no header: {line}"))?;
        headers.append(HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_str(value.trim())?);
    }
    Ok((status, headers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_a_status_and_headers() {
        let (status, headers) = parse_head(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nA: b: c\r\n\r\n").unwrap();
        assert_eq!((status, headers.len()), (StatusCode::NOT_FOUND, 2));
        assert_eq!((&headers[CONTENT_LENGTH], &headers["a"]), (&"2".parse().unwrap(), &"b: c".parse().unwrap()));
        for bad in [&b"HTTP/1.1\r\n\r\n"[..], b"SSH-2.0 200\r\n\r\n", b"HTTP/1.1 200 OK\r\nx\r\n\r\n", b"\xff\r\n\r\n"]
        {
            assert!(parse_head(bad).is_err());
        }
    }
}
