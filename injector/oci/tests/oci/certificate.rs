//! A certificate for this machine, and those who trust it.

use std::sync::Arc;

use anyhow::Result;
use nudge_oci::Registry;
use nudge_outbound::Reach;
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{RootCertStore, ServerConfig};

pub(crate) struct Certificate(CertifiedKey<KeyPair>);

impl Certificate {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(generate_simple_self_signed(["127.0.0.1".to_owned(), "localhost".to_owned()])?))
    }

    pub(crate) fn pem(&self) -> String {
        self.0.cert.pem()
    }

    pub(crate) fn key_pem(&self) -> String {
        self.0.signing_key.serialize_pem()
    }

    pub(crate) fn der(&self) -> &CertificateDer<'static> {
        self.0.cert.der()
    }

    pub(crate) fn key_der(&self) -> Vec<u8> {
        self.0.signing_key.serialize_der()
    }

    /// For a server.
    pub(crate) fn server(&self) -> Result<Arc<ServerConfig>> {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![self.der().clone()], key)?;
        Ok(Arc::new(config))
    }

    /// A client that trusts it.
    pub(crate) fn client(&self) -> Result<Registry> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der().clone())?;
        Ok(Registry::new(Reach::Anywhere, Arc::new(roots)))
    }
}
