//! The endpoint's listener: the slots that each client counts for, TLS, and HTTP for each connection.

use std::future::pending;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::{Request, Response};
use nudge_server::accept::{self, ConnectionError, Handler, Server};
use nudge_server::http::{HttpLimits, serve_http};
use nudge_server::memory::Trimmer;
use nudge_server::slots::Slots;
use nudge_server::tls::Tls;
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::bindings::{Bindings, bind_when_free};
use super::connections::{AgentConnection, Connections};
use super::reply_body::ReplyBody;
use super::{Limits, OwnAddresses, RequestOrigin};
use crate::metrics::Metrics;
use crate::status::StatusPage;

/// The size of the buffer for a client's request and of the buffer for a reply's head, in bytes.
const HTTP_BUFFER_BYTES: usize = 16 * 1024;
/// The delay between a connection's end and the return of freed memory.
const TRIM_DELAY: Duration = Duration::from_millis(500);

/// The endpoint apart from its answers.
pub struct Endpoint {
    /// The addresses for the endpoint to listen at.
    pub bindings: Bindings,
    /// The status, which shows the addresses that the endpoint can't listen on.
    pub status: StatusPage,
    /// The certificate and the settings of TLS.
    pub tls: Arc<ServerConfig>,
    /// The addresses whose clients count as being in the pod.
    pub own_addresses: OwnAddresses,
    /// The bounds of memory, sizes and times.
    pub limits: Arc<Limits>,
    /// The slots for connections.
    pub connections: Connections,
    /// The metrics of the agent.
    pub metrics: Metrics,
}

/// Serves until dropped; `answer` answers each request.
pub async fn serve<A, F>(endpoint: Endpoint, answer: A)
where
    A: Fn(AgentConnection, Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<ReplyBody>> + Send + 'static,
{
    let Endpoint { bindings, status, tls, own_addresses, limits, connections, metrics } = endpoint;
    let trimmer = Trimmer::new(TRIM_DELAY);
    let server = || Server {
        name: "endpoint",
        metrics: metrics.connections().clone(),
        drain: Duration::ZERO,
        trimmer: Some(trimmer.clone()),
    };
    let tls = Tls {
        config: tls,
        handshake_timeout: limits.handshake,
        stall: limits.stall,
        turns: None,
        plain_http: "this port speaks HTTPS; use the URL in MY_CONFIG_ENDPOINT",
    };
    let http = HttpLimits { head: limits.head, head_bytes: limits.head_bytes, buffer_bytes: HTTP_BUFFER_BYTES };
    let clients = Arc::new(Clients { own_addresses, limits, connections, tls, http, answer });
    let mut tasks = JoinSet::new();
    let (open, faults) = bindings.into_parts();
    for listener in open {
        tasks.spawn(server().run(listener, Arc::clone(&clients), pending()));
    }
    for (address, fault) in faults {
        let (server, clients, status) = (server(), Arc::clone(&clients), status.clone());
        tasks.spawn(async move {
            let listener = bind_when_free(address, fault, &status).await;
            server.run(listener, clients, pending()).await;
        });
    }
    // None of the tasks ends by itself.
    tasks.join_next().await;
}

struct Clients<A> {
    own_addresses: OwnAddresses,
    limits: Arc<Limits>,
    connections: Connections,
    tls: Tls,
    http: HttpLimits,
    answer: A,
}

impl<A, F> Handler<TcpStream> for Clients<A>
where
    A: Fn(AgentConnection, Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<ReplyBody>> + Send + 'static,
{
    fn slots(&self, stream: &TcpStream, peer: IpAddr) -> &Slots {
        let origin =
            stream.local_addr().map_or(RequestOrigin::Foreign, |local| self.own_addresses.origin(peer, local.ip()));
        self.connections.slots(origin)
    }

    async fn serve(&self, connection: accept::Connection<TcpStream>) -> Result<(), ConnectionError> {
        let accept::Connection { stream, slot, .. } = connection;
        let is_crowded = self.connections.count() > self.limits.uncrowded;
        let ahead_bytes = if is_crowded { self.limits.ahead_bytes_crowded } else { self.limits.ahead_bytes };
        let stream = self.tls.accept(stream, &slot, ahead_bytes).await?;
        let connection = self.connections.connection(slot);
        // The endpoint is never stopped, so the connection needs no signal for it.
        serve_http(stream, &self.http, pending(), |request| (self.answer)(connection.clone(), request)).await
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use bytes::Bytes;
    use http_body_util::{Empty, Full};
    use hyper::client::conn::http1 as client;
    use hyper_util::rt::TokioIo;
    use nudge_server::tls::server_config;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::sign::SingleCertAndKey;
    use rustls::{ClientConfig, RootCertStore};
    use time::OffsetDateTime;
    use tokio::time::timeout;
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::identity::{Authority, serving_addresses};
    use crate::serve::bind;

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
        let metrics = Metrics::default();
        let connections = Connections::new(&limits, metrics.connections());
        let certificate = authority.make_serving_certificate(&serving_addresses(&[]), now).unwrap();
        let endpoint = Endpoint {
            bindings: listener.into(),
            status: StatusPage::new("dir", Vec::new(), std::time::Instant::now()),
            tls: Arc::new(server_config(Arc::new(SingleCertAndKey::from(certificate))).unwrap()),
            own_addresses: OwnAddresses::default(),
            limits,
            connections: connections.clone(),
            metrics,
        };
        tokio::spawn(serve(endpoint, |connection: AgentConnection, request: Request<Incoming>| async move {
            let _guard = connection.begin_request();
            assert_ne!(request.uri().path(), "/panic", "as the test expects");
            Response::new(Full::default())
        }));
        assert!(get(address, Arc::clone(&tls), "/panic").await.is_err());
        assert_eq!(get(address, tls, "/").await.unwrap(), 200);
        let all_ended = async {
            while connections.count() > 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(10), all_ended).await.expect("the slots of both connections are free again");
    }
}
