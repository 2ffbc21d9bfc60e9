//! An endpoint in this process, for bounds that take long to reach and for faults that no request can cause.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response};
use nudge_agent::identity::{Identity, serving_addresses};
use nudge_agent::metrics::Metrics;
use nudge_agent::serve::{AgentConnection, Connections, Endpoint, Limits, OwnAddresses, ReplyBody, bind, serve};
use nudge_agent::status::StatusPage;
use nudge_server::tls::server_config;
use nudge_tests::Access;
use rustls::sign::SingleCertAndKey;
use tempfile::TempDir;
use time::OffsetDateTime;
use tokio::task::JoinHandle;

/// An endpoint that runs until dropped.
pub(crate) struct InProcess {
    /// The access to the endpoint.
    pub(crate) access: Access,
    /// The connections of the endpoint.
    pub(crate) connections: Connections,
    task: JoinHandle<()>,
    _folder: TempDir,
}

impl InProcess {
    pub(crate) fn start(limits: Limits) -> Result<Self> {
        let now = OffsetDateTime::now_utc();
        let identity = Identity::generate(now)?;
        let folder = tempfile::tempdir()?;
        let authority = folder.path().join("ca.crt");
        std::fs::write(&authority, identity.authority.certificate_pem())?;

        let limits = Arc::new(limits);
        let metrics = Metrics::default();
        let connections = Connections::new(&limits, metrics.connections());
        let certificate = identity.authority.make_serving_certificate(&serving_addresses(&[]), now)?;
        let listener = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = listener.local_addr()?;
        let endpoint = Endpoint {
            bindings: listener.into(),
            status: StatusPage::new("dir", Vec::new(), std::time::Instant::now()),
            tls: Arc::new(server_config(Arc::new(SingleCertAndKey::from(certificate)))?),
            own_addresses: OwnAddresses::default(),
            limits,
            connections: connections.clone(),
            metrics,
        };
        let task = tokio::spawn(serve(endpoint, answer));
        let access =
            Access { address, token: identity.token.expose().to_owned(), authority, variables: BTreeMap::new() };
        Ok(Self { access, connections, task, _folder: folder })
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers `/big` with a large body, panics at `/panic`, and answers other paths with `ok`.
#[allow(clippy::panic, reason = "a panic is what is tested")]
async fn answer(connection: AgentConnection, request: Request<Incoming>) -> Response<ReplyBody> {
    let _guard = connection.begin_request();
    let body = match request.uri().path() {
        "/panic" => panic!("this was requested"),
        // More than the kernel buffers for a reader that takes nothing.
        "/big" => Bytes::from(vec![b'x'; 32 * 1024 * 1024]),
        _ => Bytes::from_static(b"ok"),
    };
    Response::new(Full::new(body))
}
