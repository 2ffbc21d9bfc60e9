//! Takes connections: within bounds, over TLS, each in a task of its own whose panic ends that connection only.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::body::ReplyBody;
use super::connections::{Connection, Connections};
use super::stall::StallGuard;
use super::{Limits, Metrics, Origin, OwnAddresses};
use crate::memory::Trimmer;

/// Connections that the kernel keeps until they are taken.
const BACKLOG: u32 = 1024;
/// Largest buffer for what a client sends and for a reply's head, in bytes. The bodies of replies are not copied into it.
const HTTP_BUFFER_BYTES: usize = 16 * 1024;
/// How long a connection from the pod waits for room.
const ROOM_POLL: Duration = Duration::from_millis(50);
/// How often it looks for room.
const ROOM_TRIES: u32 = 100;
/// How many connections may wait for room at the same time.
const PARKED: usize = 64;
/// How much the kernel takes of what a client sends before we do, in bytes; doubled likewise. Requests are small.
const RECEIVE_BUFFER_BYTES: u32 = 16 * 1024;
/// How much of a reply the kernel takes from us before the client does, in bytes; it doubles that for itself (socket(7)). Replies
/// of large dictionaries would else fill megabytes for each slow client.
const SEND_BUFFER_BYTES: u32 = 64 * 1024;

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
        // Connections inherit it.
        socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
        socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse { address, source },
        _ => BindError::Io { address, source },
    })
}

/// What the endpoint is made of, apart from the answers.
pub struct Endpoint {
    /// Where it listens.
    pub listener: TcpListener,
    /// Its certificate and settings.
    pub tls: ServerConfig,
    /// Who counts as being in the pod.
    pub own: OwnAddresses,
    /// The bounds.
    pub limits: Arc<Limits>,
    /// The connections.
    pub connections: Connections,
    /// Figures.
    pub metrics: Metrics,
    /// Gives memory back when connections have ended.
    pub trimmer: Trimmer,
}

/// Serves until dropped; `answer` answers each request.
pub async fn serve<A, F>(endpoint: Endpoint, answer: A)
where
    A: Fn(Connection, Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Response<ReplyBody>, Infallible>> + Send + 'static,
{
    let Endpoint { listener, tls, own, limits, connections, metrics, trimmer } = endpoint;
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let parking = Arc::new(Semaphore::new(PARKED));
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
        let crowded = connections.count() > limits.uncrowded;
        let ahead = if crowded { limits.ahead_bytes_crowded } else { limits.ahead_bytes };
        let mut admitted = connections.admit(origin, peer.ip(), Instant::now());
        let mut parked = None;
        if admitted.is_none() {
            if origin == Origin::Foreign {
                metrics.connection_refused();
                continue;
            }
            // Those from the pod wait for room; when too many do, the rest stay in the kernel's queue instead of failing.
            parked = Arc::clone(&parking).acquire_owned().await.ok();
        }
        let (acceptor, limits, answer) = (acceptor.clone(), Arc::clone(&limits), answer.clone());
        let (metrics, connections, trimmer) = (metrics.clone(), connections.clone(), trimmer.clone());
        tokio::spawn(async move {
            if admitted.is_none() {
                admitted = room(&connections, origin, peer.ip()).await;
                drop(parked);
            }
            let Some(connection) = admitted else { return metrics.connection_refused() };
            metrics.connections(connections.count());
            // Also when an answer panics: its connection is over, and all others go on.
            let _closed = OnDrop(|| {
                metrics.connections(connections.count());
                trimmer.connection_closed();
            });
            if converse(stream, acceptor, connection, &limits, ahead, answer).await.is_err() {
                metrics.connection_failed();
            }
        });
    }
}

struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        self.0();
    }
}

/// Waits for room for a connection.
async fn room(connections: &Connections, origin: Origin, peer: IpAddr) -> Option<Connection> {
    for _ in 0..ROOM_TRIES {
        sleep(ROOM_POLL).await;
        if let Some(connection) = connections.admit(origin, peer, Instant::now()) {
            return Some(connection);
        }
    }
    None
}

/// The connection ended with a fault that the log tells.
struct Faulty;

async fn converse<A, F>(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    connection: Connection,
    limits: &Limits,
    ahead: usize,
    answer: A,
) -> Result<(), Faulty>
where
    A: Fn(Connection, Request<Incoming>) -> F,
    F: Future<Output = Result<Response<ReplyBody>, Infallible>>,
{
    // Replies are written whole, so waiting for more to send would only delay them.
    let _ = stream.set_nodelay(true);
    let tls = tokio::select! {
        () = connection.cut() => return Ok(()),
        tls = timeout(limits.handshake, handshake(stream, &acceptor, limits, ahead)) => tls,
    };
    let tls = match tls {
        Ok(Ok(tls)) => tls,
        Ok(Err(error)) => {
            tracing::debug!(%error, "TLS handshake failed");
            return Err(Faulty);
        }
        Err(_) => {
            tracing::debug!("TLS handshake took too long");
            return Err(Faulty);
        }
    };
    connection.established();
    let http = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_header_size(limits.head_bytes)
        .max_buf_size(HTTP_BUFFER_BYTES)
        .serve_connection(TokioIo::new(tls), service_fn(|request| answer(connection.clone(), request)));
    tokio::select! {
        () = connection.cut() => Ok(()),
        result = http => result.map_err(|error| {
            tracing::debug!(%error, "connection ended with a fault");
            Faulty
        }),
    }
}

type TlsStream = tokio_rustls::server::TlsStream<StallGuard<TcpStream>>;

async fn handshake(
    mut stream: TcpStream,
    acceptor: &TlsAcceptor,
    limits: &Limits,
    ahead: usize,
) -> io::Result<TlsStream> {
    let mut first = [0];
    // The first byte of TLS is 22 (RFC 8446, section 5.1); a letter is the method of a plain HTTP request.
    if stream.peek(&mut first).await? == 1 && first[0].is_ascii_uppercase() {
        refuse_plain_http(&mut stream).await?;
        return Err(io::Error::other("plain HTTP on the TLS port"));
    }
    let stream = StallGuard::new(stream, limits.stall);
    acceptor.accept_with(stream, |session| session.set_buffer_limit(Some(ahead))).await
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use bytes::Bytes;
    use http_body_util::{Empty, Full};
    use hyper::client::conn::http1 as client;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::{ClientConfig, RootCertStore};
    use time::OffsetDateTime;
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::identity::{Authority, serving_addresses};
    use crate::serve::tls_config;

    async fn get(address: SocketAddr, tls: Arc<ClientConfig>, path: &str) -> Result<hyper::StatusCode, hyper::Error> {
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::from(address.ip());
        let stream = TlsConnector::from(tls).connect(name, stream).await.unwrap();
        let (mut sender, connection) = client::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = Request::get(path).header("host", "test").body(Empty::<Bytes>::new()).unwrap();
        Ok(sender.send_request(request).await?.status())
    }

    #[tokio::test]
    async fn a_panic_in_a_request_ends_its_connection_and_nothing_else() {
        let now = OffsetDateTime::now_utc();
        let authority = Authority::generate(now).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.certificate_pem().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let tls = Arc::new(tls.with_root_certificates(roots).with_no_client_auth());

        let listener = bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let limits = Arc::new(Limits::default());
        let connections = Connections::new(Arc::clone(&limits));
        let endpoint = Endpoint {
            listener,
            tls: tls_config(authority.serving(&serving_addresses(&[]), now).unwrap()).unwrap(),
            own: OwnAddresses::default(),
            limits,
            connections: connections.clone(),
            metrics: Metrics::default(),
            trimmer: Trimmer::default(),
        };
        tokio::spawn(serve(endpoint, |connection: Connection, request: Request<Incoming>| async move {
            let _busy = connection.busy();
            assert_ne!(request.uri().path(), "/panic", "as wanted");
            Ok(Response::new(Full::default()))
        }));
        assert!(get(address, Arc::clone(&tls), "/panic").await.is_err());
        assert_eq!(get(address, tls, "/").await.unwrap(), 200);
        let gone = async {
            while connections.count() > 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(10), gone).await.expect("the places of both connections come back");
    }
}
