//! TLS of every listener: TLS 1.2 and 1.3 with HTTP/1.1, and one handshake.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use nudge_protocol::ErrorBody;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;

use crate::accept::ConnectionError;
use crate::shares::Shares;
use crate::slots::Slot;
use crate::stall::StallGuard;

/// The usual number of bytes that TLS encrypts before the client reads them.
pub const AHEAD_BYTES: usize = 64 * 1024;
/// The time that a handshake keeps its turn while it waits for the client.
const HANDSHAKE_TURN_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns settings for TLS 1.2 and 1.3 with HTTP/1.1. The resolver may change its certificate at any time. Sessions
/// are not resumed: connections are long, and a store of sessions costs memory.
pub fn server_config(certificates: Arc<dyn ResolvesServerCert>) -> Result<ServerConfig, rustls::Error> {
    server_config_for(certificates, WebPkiClientVerifier::no_client_auth())
}

/// Returns the settings of [`server_config`] for the clients that `clients` accepts.
pub fn server_config_for(
    certificates: Arc<dyn ResolvesServerCert>,
    clients: Arc<dyn ClientCertVerifier>,
) -> Result<ServerConfig, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_client_cert_verifier(clients)
        .with_cert_resolver(certificates);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// A connection after its handshake. Its writes fail when the client reads nothing for too long.
pub type TlsStream = tokio_rustls::server::TlsStream<StallGuard<TcpStream>>;

/// The turns of handshakes, which bound how many run at the same time. The rest wait, so that after a storm the first
/// are done early instead of all late.
#[derive(Debug)]
pub struct Turns {
    /// The turns; one address has at most a quarter.
    pub shares: Shares,
    /// The maximum time that a handshake waits for its turn.
    pub wait: Duration,
}

/// The handshakes of one listener.
#[derive(Debug)]
pub struct Tls {
    /// Certificates and protocol.
    pub config: Arc<ServerConfig>,
    /// The maximum time from accepting a connection until its handshake is done, without the wait for a turn.
    pub handshake_timeout: Duration,
    /// The maximum time that a client may leave all of the bytes sent to it unread.
    pub stall: Duration,
    /// The turns, if handshakes are bounded.
    pub turns: Option<Turns>,
    /// The message of the reply to plain HTTP.
    pub plain_http: &'static str,
}

impl Tls {
    /// Does the handshake once the client has begun it. `ahead_bytes` bounds the bytes that TLS encrypts before
    /// the client reads them.
    pub async fn accept(
        &self,
        stream: TcpStream,
        slot: &Slot,
        ahead_bytes: usize,
    ) -> Result<TlsStream, ConnectionError> {
        // On the heap, which is free again after the handshake.
        let stream = Box::pin(self.handshake(stream, slot, ahead_bytes)).await.map_err(ConnectionError::Handshake)?;
        slot.mark_established();
        Ok(stream)
    }

    async fn handshake(&self, mut stream: TcpStream, slot: &Slot, ahead_bytes: usize) -> io::Result<TlsStream> {
        let deadline = Instant::now() + self.handshake_timeout;
        let mut first = [0];
        let count = timeout_at(deadline, stream.peek(&mut first)).await??;
        // The first byte of TLS is 22 (RFC 8446, section 5.1); a letter is the method of a plain HTTP request.
        if count == 1 && first[0].is_ascii_uppercase() {
            timeout_at(deadline, self.refuse_plain_http(&mut stream)).await??;
            return Err(io::Error::other("plain HTTP on the TLS port"));
        }
        let (mut turn, turn_wait) = match &self.turns {
            Some(turns) => {
                let began = Instant::now();
                (Some(timeout(turns.wait, turns.shares.take(slot.peer(), 1)).await?), began.elapsed())
            }
            None => (None, Duration::ZERO),
        };
        let stream = StallGuard::new(stream, self.stall);
        let acceptor = TlsAcceptor::from(Arc::clone(&self.config));
        let accept = acceptor.accept_with(stream, |session| session.set_buffer_limit(Some(ahead_bytes)));
        tokio::pin!(accept);
        let handshake = async {
            if turn.is_some() {
                if let Ok(done) = timeout(HANDSHAKE_TURN_TIMEOUT, &mut accept).await {
                    return done;
                }
                // Little work is left; others need not wait for a slow client.
                turn.take();
            }
            accept.await
        };
        timeout_at(deadline + turn_wait, handshake).await?
    }

    async fn refuse_plain_http(&self, stream: &mut TcpStream) -> io::Result<()> {
        let body = ErrorBody { error: "PlainHttp".to_owned(), message: self.plain_http.to_owned() };
        let head = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n".as_bytes();
        stream.write_all(&[head, &serde_json::to_vec(&body)?].concat()).await?;
        stream.shutdown().await?;
        // Closing with unread bytes would reset the connection and might take the reply with it.
        let mut buffer = [0; 1024];
        for _ in 0..8 {
            if timeout(Duration::from_secs(1), stream.read(&mut buffer)).await.map_or(Ok(0), |read| read)? == 0 {
                break;
            }
        }
        Ok(())
    }
}
