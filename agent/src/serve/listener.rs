//! Takes connections: within bounds, over TLS, each in a task of its own whose panic ends that connection only.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::connections::{Connection, Connections};
use super::handler::App;
use super::stall::StallGuard;
use super::{Limits, Origin, OwnAddresses};
use crate::memory::Trimmer;

/// Connections that the kernel keeps until they are taken.
const BACKLOG: u32 = 1024;
/// Largest buffer for what a client sends and for a reply's head, in bytes. The bodies of replies are not copied into it.
const HTTP_BUFFER_BYTES: usize = 16 * 1024;
/// How much TLS may encrypt ahead of what the client takes, in bytes.
const TLS_BUFFER_BYTES: usize = 64 * 1024;
/// How long a connection from the pod waits for room.
const ROOM_POLL: Duration = Duration::from_millis(50);
/// How often it looks for room.
const ROOM_TRIES: u32 = 100;

/// Why the endpoint can't listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Something else listens there.
    #[error("port {} of {} is in use; choose another with --port, or --port 0 for a free one", address.port(), address.ip())]
    InUse {
        /// The address.
        address: SocketAddr,
        /// The refusal.
        source: io::Error,
    },
    /// The operating system refused.
    #[error("can't listen on {address}")]
    Io {
        /// The address.
        address: SocketAddr,
        /// The refusal.
        source: io::Error,
    },
}

/// Listens on `address`.
pub fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    let listen = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // A restarted agent takes its port again at once (socket(7)).
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse { address, source },
        _ => BindError::Io { address, source },
    })
}

/// Serves until dropped.
pub async fn serve(
    listener: TcpListener,
    tls: ServerConfig,
    own: OwnAddresses,
    connections: Connections,
    app: Arc<App>,
    trimmer: Trimmer,
) {
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let mut backoff = Duration::from_millis(10);
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Such as no file descriptor being left: trying at once again would only burn the processor.
                tracing::warn!(%error, "can't take connections for a moment");
                sleep(backoff).await;
                backoff = (backoff * 2).min(Duration::from_secs(1));
                continue;
            }
        };
        backoff = Duration::from_millis(10);
        let origin = stream.local_addr().map_or(Origin::Foreign, |local| own.origin(peer, local));
        let Some(connection) = room(&connections, origin).await else {
            app.metrics.connection_refused();
            continue;
        };
        app.metrics.connections(connections.count());
        let (acceptor, app, trimmer, connections) =
            (acceptor.clone(), Arc::clone(&app), trimmer.clone(), connections.clone());
        tokio::spawn(async move {
            converse(stream, acceptor, connection, &app).await;
            app.metrics.connections(connections.count());
            trimmer.connection_closed();
        });
    }
}

/// Finds room for a connection. One from the pod waits for it, which also keeps those behind it in the kernel's queue
/// instead of failing them.
async fn room(connections: &Connections, origin: Origin) -> Option<Connection> {
    for _ in 0..ROOM_TRIES {
        if let Some(connection) = connections.admit(origin, Instant::now()) {
            return Some(connection);
        }
        if origin == Origin::Foreign {
            return None;
        }
        sleep(ROOM_POLL).await;
    }
    None
}

async fn converse(stream: TcpStream, acceptor: TlsAcceptor, connection: Connection, app: &Arc<App>) {
    // Replies are written whole, so waiting for more to send would only delay them.
    let _ = stream.set_nodelay(true);
    let tls = tokio::select! {
        () = connection.cut() => return,
        tls = timeout(app.limits.handshake, handshake(stream, &acceptor, &app.limits)) => tls,
    };
    let tls = match tls {
        Ok(Ok(tls)) => tls,
        Ok(Err(error)) => {
            tracing::debug!(%error, "TLS handshake failed");
            return app.metrics.connection_failed();
        }
        Err(_) => {
            tracing::debug!("TLS handshake took too long");
            return app.metrics.connection_failed();
        }
    };
    connection.established();
    let answer = |request| Arc::clone(app).answer(connection.clone(), request);
    let http = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(app.limits.head)
        .max_header_size(app.limits.head_bytes)
        .max_buf_size(HTTP_BUFFER_BYTES)
        .serve_connection(TokioIo::new(tls), service_fn(answer));
    tokio::select! {
        () = connection.cut() => {}
        result = http => if let Err(error) = result {
            tracing::debug!(%error, "connection ended with a fault");
            app.metrics.connection_failed();
        }
    }
}

type TlsStream = tokio_rustls::server::TlsStream<StallGuard<TcpStream>>;

async fn handshake(mut stream: TcpStream, acceptor: &TlsAcceptor, limits: &Limits) -> io::Result<TlsStream> {
    let mut first = [0];
    // The first byte of TLS is 22 (RFC 8446, section 5.1); a letter is the method of a plain HTTP request.
    if stream.peek(&mut first).await? == 1 && first[0].is_ascii_uppercase() {
        refuse_plain_http(&mut stream).await?;
        return Err(io::Error::other("plain HTTP on the TLS port"));
    }
    let stream = StallGuard::new(stream, limits.stall);
    acceptor.accept_with(stream, |session| session.set_buffer_limit(Some(TLS_BUFFER_BYTES))).await
}

async fn refuse_plain_http(stream: &mut TcpStream) -> io::Result<()> {
    const REPLY: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n\
        {\"error\":\"PlainHttp\",\"message\":\"this port speaks HTTPS; use the URL in MY_CONFIG_ENDPOINT\"}";
    stream.write_all(REPLY).await?;
    stream.shutdown().await?;
    // Closing with unread bytes would reset the connection and might take the reply with it.
    let mut rest = [0; 1024];
    for _ in 0..8 {
        if timeout(Duration::from_secs(1), stream.read(&mut rest)).await.map_or(Ok(0), |read| read)? == 0 {
            break;
        }
    }
    Ok(())
}
