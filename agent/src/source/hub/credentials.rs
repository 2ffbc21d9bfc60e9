//! The CA bundle that the agent trusts the hub by, and the token that it shows to the hub.
//!
//! In an injected pod the bundle is in the environment of the agent's container, which nobody can change. The token is
//! a file that changes while the agent runs.

use std::borrow::Cow;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hyper::header::HeaderValue;
use nudge_protocol::mutex::lock;
use rustls::client::Resumption;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use zeroize::Zeroizing;

use super::failure::{FailureKind, HubFailure};

/// The maximum age of the token before it is read again. The kubelet renews the token long before it expires.
const MAX_TOKEN_AGE: Duration = Duration::from_mins(1);
/// The maximum number of TLS sessions that are kept for resumption: there is one hub.
const MAX_SESSIONS: usize = 2;

/// The CA bundle; the agent trusts the hub by nothing else.
#[derive(Clone, Debug)]
pub enum HubCa {
    /// The bundle itself (PEM).
    Bundle(String),
    /// A file with the bundle, which another program keeps up to date.
    File(PathBuf),
}

/// The bundle and the token as they are now, shared by all connections to the hub.
pub struct Credentials {
    ca: HubCa,
    token_file: PathBuf,
    tls: Mutex<Option<BundleTls>>,
    token: Mutex<Option<ReadToken>>,
}

/// The TLS settings that trust a bundle.
struct BundleTls {
    bundle: String,
    config: Arc<ClientConfig>,
}

/// The token that was read last.
struct ReadToken {
    read_at: Instant,
    authorization: HeaderValue,
}

impl Credentials {
    /// Creates credentials that are not read yet.
    pub fn new(ca: HubCa, token_file: PathBuf) -> Self {
        Self { ca, token_file, tls: Mutex::default(), token: Mutex::default() }
    }

    /// Returns TLS settings for a new connection. A file with the bundle is read each time; while it stays the same,
    /// sessions are resumed.
    pub fn tls(&self) -> Result<Arc<ClientConfig>, HubFailure> {
        let local = |message| HubFailure::new(FailureKind::Local, message);
        let (bundle, title) = match &self.ca {
            HubCa::Bundle(bundle) => (Cow::Borrowed(bundle), "the hub's CA bundle".to_owned()),
            HubCa::File(path) => {
                let title = format!("the hub's CA bundle {}", path.display());
                match fs::read_to_string(path) {
                    Ok(bundle) => (Cow::Owned(bundle), title),
                    Err(error) => return Err(local(format!("{title} can't be read: {error}"))),
                }
            }
        };
        let mut last = lock(&self.tls);
        if let Some(last) = last.as_ref().filter(|last| last.bundle == *bundle) {
            return Ok(Arc::clone(&last.config));
        }
        let config = Arc::new(client_config(&bundle).map_err(|fault| local(format!("{title} {fault}")))?);
        *last = Some(BundleTls { bundle: bundle.into_owned(), config: Arc::clone(&config) });
        Ok(config)
    }

    /// Returns the value of `Authorization`. The token is read again after a minute, or if `reread` is set.
    pub fn authorization(&self, reread: bool) -> Result<HeaderValue, HubFailure> {
        let mut last = lock(&self.token);
        if let Some(last) = last.as_ref().filter(|last| !reread && last.read_at.elapsed() < MAX_TOKEN_AGE) {
            return Ok(last.authorization.clone());
        }
        let path = self.token_file.display();
        let local =
            |fault: String| HubFailure::new(FailureKind::Local, format!("the token for the hub {path} {fault}"));
        let token = fs::read_to_string(&self.token_file).map_err(|error| local(format!("can't be read: {error}")))?;
        let token = Zeroizing::new(token);
        let text = Zeroizing::new(format!("Bearer {}", token.trim()));
        let mut authorization = HeaderValue::from_str(&text).map_err(|_| local("holds no valid token".to_owned()))?;
        authorization.set_sensitive(true);
        *last = Some(ReadToken { read_at: Instant::now(), authorization: authorization.clone() });
        Ok(authorization)
    }
}

/// Returns TLS settings that trust the certificates of this bundle (PEM) and no others; or what is wrong with it.
pub(crate) fn client_config(bundle: &str) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        let certificate = certificate.map_err(|error| format!("is not PEM: {error}"))?;
        roots.add(certificate).map_err(|error| format!("has a certificate that can't be used: {error}"))?;
    }
    if roots.is_empty() {
        return Err("holds no certificate".to_owned());
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("can't be used: {error}"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::in_memory_sessions(MAX_SESSIONS);
    Ok(config)
}
