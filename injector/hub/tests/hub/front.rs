//! A hub behind real TLS in this process, and the requests of an agent to it, byte for byte.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Result, ensure};
use hyper::StatusCode;
use nudge_hub::{Hub, bind, serve};
use nudge_protocol::hub::{ConfigClaim, POLL_PATH, PollHead, PollRequest};
use nudge_server::tls::server_config;
use nudge_tests::cluster::Authority;
use nudge_tests::{Raw, Reply};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A hub that is served, until the runtime ends.
pub(crate) struct Front {
    /// Where.
    pub(crate) address: SocketAddr,
    /// For clients that trust it.
    pub(crate) tls: Arc<ClientConfig>,
    /// Ends after [`Self::stop`].
    pub(crate) served: JoinHandle<()>,
    stop: Option<oneshot::Sender<()>>,
}

impl Front {
    /// Serves `hub` on a free port.
    pub(crate) fn new(hub: &Arc<Hub>) -> Result<Self> {
        let authority = Authority::new("hub")?;
        let certified = authority.server(&["127.0.0.1"])?;
        let chain = vec![CertificateDer::from_pem_slice(certified.certificate.as_bytes())?];
        let key = PrivateKeyDer::from_pem_slice(certified.key.as_bytes())?;
        let key = CertifiedKey::new(chain, rustls::crypto::ring::sign::any_supported_type(&key)?);
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.certificate().as_bytes())?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let listener = bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let shutdown = async {
            let _ = stopped.await;
        };
        let server = server_config(Arc::new(SingleCertAndKey::from(key)))?;
        let served = tokio::spawn(serve(listener, Arc::new(server), Arc::clone(hub), shutdown));
        let tls = Arc::new(tls.with_root_certificates(roots).with_no_client_auth());
        Ok(Self { address, tls, served, stop: Some(stop) })
    }

    /// A connection to it.
    pub(crate) async fn connect(&self) -> Result<Raw> {
        Raw::over(TcpStream::connect(self.address).await?, self.address.ip(), &self.tls).await
    }

    /// Begins to end it.
    pub(crate) fn stop(&mut self) {
        self.stop = None;
    }
}

/// A request with a token and a body.
pub(crate) fn message(path: &str, token: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: hub\r\nauthorization: Bearer {token}\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

/// A poll.
pub(crate) fn poll(token: &str, request: &PollRequest) -> Result<String> {
    Ok(message(POLL_PATH, token, &serde_json::to_string(request)?))
}

/// The head and the blocks of a reply.
pub(crate) fn read(reply: &Reply) -> Result<(PollHead, Vec<&[u8]>)> {
    ensure!(reply.status == StatusCode::OK, "{} {:?}", reply.status, reply.body);
    let mut pieces = Vec::new();
    let mut rest = &reply.body[..];
    while !rest.is_empty() {
        let (length, after) = rest.split_at(4);
        let (piece, after) = after.split_at(u32::from_be_bytes(length.try_into()?) as usize);
        pieces.push(piece);
        rest = after;
    }
    Ok((serde_json::from_slice(pieces.remove(0))?, pieces))
}

/// Returns the request of an agent that has processed the head.
pub(crate) fn after(head: &PollHead) -> PollRequest {
    let held = head.configs.iter().map(|config| ConfigClaim {
        name: config.name.clone(),
        uid: config.uid.clone(),
        revision: config.revision,
        version: config.version.clone(),
        sha256: config.sha256.clone(),
        problem: config.problem.as_ref().map(|problem| problem.reason),
        mounted_secrets: Vec::new(),
    });
    PollRequest {
        configs: held.collect(),
        containers_hash: head.containers_hash.clone(),
        wait_seconds: 60,
        ..PollRequest::default()
    }
}
