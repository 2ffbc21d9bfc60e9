//! A client of the endpoint for use inside the pod, so that shell scripts need no TLS flags.

use std::error::Error;
use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper::{Request, Uri, header};
use hyper_util::rt::TokioIo;
use nudge_protocol::error_chain::message;
use nudge_protocol::limits::MAX_DICTIONARY_BYTES;
use nudge_protocol::{ErrorBody, env, headers, pod};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use zeroize::Zeroizing;

use crate::identity::Share;
use crate::source::hub::client_config;

/// The maximum time for a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

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
    pub(super) fn without_token(endpoint: &str, certificate: &Path) -> Result<Self, String> {
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
    fn from_process() -> Result<Self, String> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        match variable(pod::env::SHARE_DIR) {
            Some(folder) if variable(env::ENDPOINT).is_none() => Self::from_share(&Share::new(Path::new(&folder))),
            _ => Self::from_env(variable),
        }
    }

    fn from_share(share: &Share) -> Result<Self, String> {
        if share.variable(env::ENDPOINT).is_none() {
            return Err(format!("the agent has not started yet: there is no {}", share.env_file().display()));
        }
        Self::from_env(|name| match name {
            env::ENDPOINT | env::TOKEN => share.variable(name).map(OsString::from),
            env::CERT => Some(share.certificate_file().into()),
            _ => None,
        })
    }

    /// Reads the variables through `variable`; an empty one counts as absent.
    fn from_env(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, String> {
        let read = |name: &'static str| variable(name).filter(|value| !value.is_empty());
        let absent = |name| {
            format!("{name} is not set; run this in a container that has Nudge's agent, or below 'nudge-agent exec'")
        };
        let required = |name| read(name).ok_or_else(|| absent(name));
        let endpoint = required(env::ENDPOINT)?;
        let uri: Uri = endpoint.to_str().and_then(|text| text.parse().ok()).ok_or_else(no_endpoint)?;
        let host = uri.host().filter(|_| uri.scheme_str() == Some("https")).ok_or_else(no_endpoint)?;
        let token = if let Some(token) = read(env::TOKEN) {
            token.into_string().map_err(|_| absent(env::TOKEN))?
        } else {
            let path = read(env::TOKEN_FILE).ok_or_else(|| absent(env::TOKEN))?;
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

fn no_endpoint() -> String {
    format!("{} is not an https URL", env::ENDPOINT)
}

fn read_text(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| because(format_args!("{} can't be read", path.display()), &error))
}

fn because(fault: impl Display, cause: &dyn Error) -> String {
    format!("{fault}: {}", message(cause))
}

/// Requests one path as this process may, and returns the reply's body.
pub(super) fn get(path: &str) -> Result<Bytes, String> {
    let access = Access::from_process()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| because("no request can be sent", &error))?;
    let late = |_| format!("the agent did not answer within {} seconds", REQUEST_TIMEOUT.as_secs());
    runtime.block_on(async { tokio::time::timeout(REQUEST_TIMEOUT, request(&access, path)).await.map_err(late)? })
}

/// Sends a request from within a runtime, without a time limit.
pub(super) async fn request(access: &Access, path: &str) -> Result<Bytes, String> {
    let unusable = |fault| format!("{} {fault}", access.certificate.display());
    let tls = client_config(&read_text(&access.certificate)?).map_err(unusable)?;
    let (left, right) = if access.host.contains(':') { ("[", "]") } else { ("", "") };
    let address = format!("{left}{}{right}:{}", access.host, access.port);
    let connect = |error| because(format_args!("the agent at {address} can't be reached"), &error);
    let stream = TcpStream::connect((access.host.as_str(), access.port)).await.map_err(connect)?;
    let name = ServerName::try_from(access.host.clone()).map_err(|_| no_endpoint())?;
    let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await.map_err(connect)?;
    let failed = |error| because("the request to the agent failed", &error);
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let mut request = Request::get(path)
        .header(header::HOST, &address)
        .header(header::AUTHORIZATION, format!("Bearer {}", access.token.as_str()));
    if let Some(container) = &access.container {
        request = request.header(headers::CONTAINER, container);
    }
    let request = request.body(Empty::<Bytes>::new());
    let request =
        request.map_err(|_| "the request can't be formed; check that the token holds no line end".to_owned())?;
    let driver = tokio::spawn(connection);
    let reply = sender.send_request(request).await.map_err(failed)?;
    let status = reply.status();
    let body = Limited::new(reply.into_body(), MAX_DICTIONARY_BYTES + 1024).collect().await;
    let body = body.map_err(|error| format!("the agent's reply can't be read: {error}"))?.to_bytes();
    driver.abort();
    if status.is_success() {
        return Ok(body);
    }
    let refusal = serde_json::from_slice(&body).map(|refusal: ErrorBody| refusal.message);
    Err(refusal.unwrap_or_else(|_| format!("the agent answered {status}")))
}
