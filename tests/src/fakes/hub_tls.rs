//! A certificate authority for a hub of the tests, and the server with its certificate.

use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

/// An authority of which no other knows.
#[derive(Debug)]
pub struct HubAuthority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl HubAuthority {
    /// Makes one.
    pub fn new() -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "hub of a test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), pem })
    }

    /// Returns its certificate.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Serves with a certificate for loopback that it has signed.
    pub fn acceptor(&self) -> Result<TlsAcceptor> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
        params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
        let certificate = params.signed_by(&key, &self.issuer)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)?;
        Ok(Arc::new(config).into())
    }
}

/// Lower-case hex.
pub fn sha256(bytes: &[u8]) -> String {
    let hash = default_provider()
        .cipher_suites
        .iter()
        .find_map(|suite| suite.tls13().filter(|suite| suite.common.hash_provider.output_len() == 32));
    let mut text = String::new();
    for byte in hash.map(|suite| suite.common.hash_provider.hash(bytes)).iter().flat_map(AsRef::as_ref) {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
