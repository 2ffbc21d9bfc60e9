//! A small HTTPS client: one connection, kept alive, opened again when the server has closed it.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, HOST, HeaderMap};
use hyper::http::request;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use nudge_protocol::status::Status;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use crate::{Access, agent::tls};

/// Trusts one authority and sends one token.
pub struct Client {
    address: SocketAddr,
    tls: TlsConnector,
    token: Option<String>,
    connection: Option<Connection>,
}

/// A whole reply.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status of the reply.
    pub status: StatusCode,
    /// The headers of the reply.
    pub headers: HeaderMap,
    /// The body of the reply.
    pub body: Bytes,
}

impl Client {
    /// Returns a client with all that the agent gave its child.
    pub fn new(access: &Access) -> Result<Self> {
        Self::with_token(access.address, &access.token, &access.authority)
    }

    /// Returns a client that does not say who it is.
    pub fn without_token(address: SocketAddr, authority: &Path) -> Result<Self> {
        Ok(Self { address, tls: tls::trusting(authority)?.into(), token: None, connection: None })
    }

    /// Returns a client with a token.
    pub fn with_token(address: SocketAddr, token: &str, authority: &Path) -> Result<Self> {
        Ok(Self { token: Some(token.to_owned()), ..Self::without_token(address, authority)? })
    }

    /// Whom it calls.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Reads one path.
    pub async fn get(&mut self, path: &str) -> Result<Reply> {
        let request = self.request(Method::GET, path).body(Full::default())?;
        self.send(request).await
    }

    /// Reads `/status`.
    pub async fn status(&mut self) -> Result<Status> {
        let reply = self.get("/status").await?;
        serde_json::from_slice(&reply.body).with_context(|| format!("{} instead of a status", reply.status))
    }

    /// Begins a request, with the token if the client has one.
    pub fn request(&self, method: Method, path: &str) -> request::Builder {
        let request = Request::builder().method(method).uri(path).header(HOST, self.address.to_string());
        match &self.token {
            Some(token) => request.header(AUTHORIZATION, format!("Bearer {token}")),
            None => request,
        }
    }

    /// Sends a request and reads the whole reply.
    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Reply> {
        let connection = match self.connection.take() {
            Some(connection) if connection.sender.is_ready() => connection,
            _ => Connection::open(self.address, &self.tls).await?,
        };
        let connection = self.connection.insert(connection);
        let reply = connection.sender.send_request(request).await.context("no reply")?;
        let (head, body) = reply.into_parts();
        let body = body.collect().await.context("the reply broke off")?.to_bytes();
        // hyper takes the next request only after its task has seen the end of this reply.
        if connection.sender.ready().await.is_err() {
            self.connection = None;
        }
        Ok(Reply { status: head.status, headers: head.headers, body })
    }
}

struct Connection {
    sender: SendRequest<Full<Bytes>>,
    task: JoinHandle<()>,
}

impl Connection {
    async fn open(address: SocketAddr, tls: &TlsConnector) -> Result<Self> {
        let stream = TcpStream::connect(address).await.with_context(|| format!("can't connect to {address}"))?;
        stream.set_nodelay(true)?;
        let name = ServerName::from(address.ip());
        let stream = tls.connect(name, stream).await.with_context(|| format!("no TLS with {address}"))?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let task = tokio::spawn(async move {
            // A fault of the connection reaches the caller that waits for a reply; nobody else needs it.
            let _ = connection.await;
        });
        Ok(Self { sender, task })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}
