//! A client of the endpoint for use inside the pod, so that shell scripts need no TLS flags.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use nudge_protocol::limits::MAX_DICTIONARY_BYTES;
use nudge_protocol::{ErrorBody, env, headers, pod};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use zeroize::Zeroizing;

use crate::identity::Share;

/// The maximum time for a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The reason why the endpoint could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    /// A variable is missing.
    #[error("{0} is not set; run this in a container that has Nudge's agent, or below 'nudge-agent exec'")]
    NoVariable(&'static str),
    /// The agent of this container has not written its files yet.
    #[error("the agent has not started yet: there is no {}", .0.display())]
    NotStarted(PathBuf),
    /// The endpoint is not an https URL.
    #[error("{} is not an https URL", env::ENDPOINT)]
    Endpoint,
    /// A file can't be read.
    #[error("{} can't be read", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The certificate can't be used.
    #[error("{} holds no certificate", .0.display())]
    Certificate(PathBuf),
    /// TLS can't be set up.
    #[error("TLS can't be set up")]
    Tls(#[from] rustls::Error),
    /// The agent can't be reached.
    #[error("the agent at {address} can't be reached")]
    Connect {
        /// The address of the agent.
        address: String,
        /// The cause.
        source: io::Error,
    },
    /// The request failed.
    #[error("the request to the agent failed")]
    Http(#[from] hyper::Error),
    /// The request can't be formed.
    #[error("the request can't be formed; check that the token holds no line end")]
    Request(#[from] hyper::http::Error),
    /// The reply could not be read.
    #[error("the agent's reply can't be read: {0}")]
    Reply(String),
    /// The agent refused.
    #[error("{}", reply.message)]
    Refused {
        /// The reply's status.
        status: StatusCode,
        /// The reply's body.
        reply: ErrorBody,
    },
    /// The answer took too long.
    #[error("the agent did not answer within {} seconds", REQUEST_TIMEOUT.as_secs())]
    TimedOut,
}

/// The access to the endpoint, from the environment.
pub(super) struct Access {
    host: String,
    port: u16,
    token: Zeroizing<String>,
    certificate: PathBuf,
    container: Option<String>,
}

impl Access {
    /// Returns the access for a call that needs no token.
    pub(super) fn without_token(endpoint: &str, certificate: &Path) -> Result<Self, ClientError> {
        let variable = |name: &str| match name {
            env::ENDPOINT => Some(endpoint.into()),
            env::TOKEN => Some("-".into()),
            env::CERT => Some(certificate.into()),
            _ => None,
        };
        Self::from_env(variable)
    }

    /// Reads the access from the variables of this process; in the agent's own container, which lacks these variables,
    /// from the files that the agent writes for the other containers.
    pub(super) fn from_process() -> Result<Self, ClientError> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        match variable(pod::env::SHARE_DIR) {
            Some(folder) if variable(env::ENDPOINT).is_none() => Self::from_share(&Share::new(Path::new(&folder))),
            _ => Self::from_env(variable),
        }
    }

    fn from_share(share: &Share) -> Result<Self, ClientError> {
        if share.variable(env::ENDPOINT).is_none() {
            return Err(ClientError::NotStarted(share.env_file()));
        }
        Self::from_env(|name| match name {
            env::ENDPOINT | env::TOKEN => share.variable(name).map(OsString::from),
            env::CERT => Some(share.certificate_file().into()),
            _ => None,
        })
    }

    /// Reads the variables through `variable`; an empty one counts as absent.
    pub(super) fn from_env(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, ClientError> {
        let read = |name: &'static str| variable(name).filter(|value| !value.is_empty());
        let required = |name| read(name).ok_or(ClientError::NoVariable(name));
        let endpoint = required(env::ENDPOINT)?;
        let uri: Uri = endpoint.to_str().and_then(|text| text.parse().ok()).ok_or(ClientError::Endpoint)?;
        let host = uri.host().filter(|_| uri.scheme_str() == Some("https")).ok_or(ClientError::Endpoint)?;
        let token = if let Some(token) = read(env::TOKEN) {
            token.into_string().map_err(|_| ClientError::NoVariable(env::TOKEN))?
        } else {
            let path = read(env::TOKEN_FILE).ok_or(ClientError::NoVariable(env::TOKEN))?;
            read_text(Path::new(&path))?
        };
        Ok(Self {
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: uri.port_u16().unwrap_or(443),
            token: Zeroizing::new(token.trim().to_owned()),
            certificate: required(env::CERT)?.into(),
            container: read(env::CONTAINER).and_then(|name| name.into_string().ok()),
        })
    }
}

fn read_text(path: &Path) -> Result<String, ClientError> {
    std::fs::read_to_string(path).map_err(|source| ClientError::File { path: path.to_owned(), source })
}

/// Requests one path and returns the reply's body.
pub(super) fn get(access: &Access, path: &str) -> Result<Bytes, ClientError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| ClientError::Reply(error.to_string()))?;
    runtime.block_on(async {
        tokio::time::timeout(REQUEST_TIMEOUT, request(access, path)).await.map_err(|_| ClientError::TimedOut)?
    })
}

/// Sends a request from within a runtime, without a time limit.
pub(super) async fn request(access: &Access, path: &str) -> Result<Bytes, ClientError> {
    let tls_config = tls(&access.certificate)?;
    let (left, right) = if access.host.contains(':') { ("[", "]") } else { ("", "") };
    let address = format!("{left}{}{right}:{}", access.host, access.port);
    let connect = |source| ClientError::Connect { address: address.clone(), source };
    let stream = TcpStream::connect((access.host.as_str(), access.port)).await.map_err(connect)?;
    let name = ServerName::try_from(access.host.clone()).map_err(|_| ClientError::Endpoint)?;
    let stream = TlsConnector::from(Arc::new(tls_config)).connect(name, stream).await.map_err(connect)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut request = Request::get(path)
        .header(header::HOST, &address)
        .header(header::AUTHORIZATION, format!("Bearer {}", access.token.as_str()));
    if let Some(container) = &access.container {
        request = request.header(headers::CONTAINER, container);
    }
    let driver = tokio::spawn(connection);
    let reply = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
    let status = reply.status();
    let body = Limited::new(reply.into_body(), MAX_DICTIONARY_BYTES + 1024).collect().await;
    let body = body.map_err(|error| ClientError::Reply(error.to_string()))?.to_bytes();
    driver.abort();
    if status.is_success() {
        return Ok(body);
    }
    let fallback = || ErrorBody { error: status.as_str().to_owned(), message: format!("the agent answered {status}") };
    Err(ClientError::Refused { status, reply: serde_json::from_slice(&body).unwrap_or_else(|_| fallback()) })
}

fn tls(certificate: &Path) -> Result<ClientConfig, ClientError> {
    let pem = read_text(certificate)?;
    let unusable = || ClientError::Certificate(certificate.to_owned());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|_| unusable())?).map_err(|_| unusable())?;
    Ok(ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}
