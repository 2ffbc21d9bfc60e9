//! The requests and replies between agents and the hub, by a client so small that one process can have ten thousand of
//! them.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, bail, ensure};
use nudge_protocol::hub::{INTERRUPT, PollHead};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Trusts servers with a certificate of these authorities.
pub(crate) fn trusting(authorities: &str) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    // Without them nobody connects, which is seen soon enough.
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(authorities.as_bytes()).filter_map(Result::ok));
    ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()
}

/// A connection to the hub, for one request at a time.
pub(crate) struct Exchange {
    stream: TlsStream<TcpStream>,
}

impl Exchange {
    /// Connects, from an address of this machine if one is named.
    pub(crate) async fn connect(connector: &TlsConnector, from: Option<IpAddr>, hub: SocketAddr) -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        if let Some(from) = from {
            socket.bind((from, 0).into())?;
        }
        let stream = socket.connect(hub).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: connector.connect(ServerName::from(hub.ip()), stream).await? })
    }

    /// Returns the body of the reply to a request; `None` for one without. When `interrupt` is over, the hub is asked
    /// to hold the request no longer.
    pub(crate) async fn post(
        &mut self,
        path: &str,
        token: &str,
        body: &impl Serialize,
        interrupt: impl Future<Output = ()>,
    ) -> Result<Option<Vec<u8>>> {
        let body = serde_json::to_string(body)?;
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: hub\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.write(head.as_bytes()).await?;
        let mut bytes = Vec::new();
        tokio::select! {
            read = self.read(&mut bytes) => read?,
            () = interrupt => self.write(INTERRUPT).await?,
        }
        self.reply(bytes).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).await?;
        Ok(self.stream.flush().await?)
    }

    /// Returns the rest of a reply that has begun with these bytes.
    async fn reply(&mut self, mut bytes: Vec<u8>) -> Result<Option<Vec<u8>>> {
        let (head, length) = loop {
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = std::str::from_utf8(&bytes[..end])?.to_ascii_lowercase();
                if head.starts_with("http/1.1 204") {
                    return Ok(None);
                }
                if !head.starts_with("http/1.1 200") {
                    bail!("{}", head.lines().next().unwrap_or_default());
                }
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                break (end + 4, length.context("no length")?.parse::<usize>()?);
            }
            self.read(&mut bytes).await?;
        };
        while bytes.len() < head + length {
            self.read(&mut bytes).await?;
        }
        Ok(Some(bytes.split_off(head)))
    }

    async fn read(&mut self, bytes: &mut Vec<u8>) -> Result<()> {
        // Room that is given back with the reply: most connections wait most of the time.
        bytes.reserve(8 * 1024);
        let count = self.stream.read_buf(bytes).await?;
        ensure!(count > 0, "closed");
        Ok(())
    }
}

/// Returns the head of a poll's reply, and how many bytes it has with its length.
pub(crate) fn head_of(body: &[u8]) -> Result<(PollHead, usize)> {
    let length: [u8; 4] = body.get(..4).context("no length")?.try_into()?;
    let end = 4 + usize::try_from(u32::from_be_bytes(length))?;
    Ok((serde_json::from_slice(body.get(4..end).context("no head")?)?, end))
}
