//! A server that is put under load, and the requests that it gets.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::ETAG;
use nudge_protocol::env::CONFIG_PATH;
use nudge_tests::{Access, Client, agent::tls};
use rustls::CipherSuite;
use tokio_rustls::TlsConnector;

use crate::load::Server;

/// The one suite that is offered, so that every server does the same work; it is what OpenSSL and rustls prefer.
pub(crate) const SUITE: CipherSuite = CipherSuite::TLS13_AES_256_GCM_SHA384;

/// A running server as its clients see it.
pub(crate) struct Contestant {
    /// What it serves.
    pub(crate) body: Bytes,
    /// Requests that it answers with the body.
    pub(crate) whole: Server,
    /// Requests that it answers with "not modified".
    pub(crate) unchanged: Server,
}

impl Contestant {
    /// Asks the server with the process `pid` once, to learn its content and its tag.
    pub(crate) async fn new(pid: i32, access: &Access) -> Result<Self> {
        let reply = Client::new(access)?.get(CONFIG_PATH).await?;
        ensure!(reply.status == StatusCode::OK, "{CONFIG_PATH} answers {}", reply.status);
        let tag = reply.headers.get(ETAG).context("a reply without a tag")?.to_str()?;

        let tls = TlsConnector::from(tls::trusting_with_suite(&access.authority, SUITE)?);
        let server = |condition: &str, status| Server {
            pid,
            address: access.address,
            tls: tls.clone(),
            request: request(access, condition),
            status,
        };
        Ok(Self {
            body: reply.body,
            whole: server("", 200),
            unchanged: server(&format!("If-None-Match: {tag}\r\n"), 304),
        })
    }
}

/// Returns a request as a plain client sends it.
fn request(access: &Access, condition: &str) -> Arc<[u8]> {
    let Access { address, token, .. } = access;
    let request = format!(
        "GET {CONFIG_PATH} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: bench\r\nAccept: */*\r\n\
         Authorization: Bearer {token}\r\n{condition}\r\n"
    );
    request.into_bytes().into()
}
