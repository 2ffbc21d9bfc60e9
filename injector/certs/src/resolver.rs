//! The serving certificate of TLS handshakes, which can be replaced while listeners run.

use std::sync::Arc;

use parking_lot::RwLock;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The newest certificate, which every handshake uses.
#[derive(Debug)]
pub(super) struct NewestCertificate(RwLock<Arc<CertifiedKey>>);

impl NewestCertificate {
    pub(super) fn new(key: CertifiedKey) -> Self {
        Self(RwLock::new(Arc::new(key)))
    }

    pub(super) fn set(&self, key: CertifiedKey) {
        *self.0.write() = Arc::new(key);
    }
}

impl ResolvesServerCert for NewestCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read()))
    }
}
