//! TLS for clients that trust one certificate authority and nothing else.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{CipherSuite, ClientConfig, RootCertStore};

/// Returns everything that rustls offers by default.
pub fn trusting(authority: &Path) -> Result<Arc<ClientConfig>> {
    configure(authority, ring::default_provider())
}

/// Offers one suite, so that two servers can be compared at the same work, and a full handshake every time.
pub fn trusting_with_suite(authority: &Path, suite: CipherSuite) -> Result<Arc<ClientConfig>> {
    let mut provider = ring::default_provider();
    provider.cipher_suites.retain(|offered| offered.suite() == suite);
    let mut config = configure(authority, provider)?;
    Arc::make_mut(&mut config).resumption = Resumption::disabled();
    Ok(config)
}

fn configure(authority: &Path, provider: CryptoProvider) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    let unreadable = || format!("can't read the certificate {}", authority.display());
    for certificate in CertificateDer::pem_file_iter(authority).with_context(unreadable)? {
        roots.add(certificate.with_context(unreadable)?)?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(provider)).with_safe_default_protocol_versions()?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}
