//! The serving certificate of TLS handshakes, replaced under running listeners.

use std::sync::Arc;

use parking_lot::RwLock;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// Resolves every handshake to the newest certificate.
#[derive(Debug)]
pub(super) struct Hot {
    certified: RwLock<Arc<CertifiedKey>>,
}

impl Hot {
    pub(super) fn new(certified: CertifiedKey) -> Self {
        Self { certified: RwLock::new(Arc::new(certified)) }
    }

    pub(super) fn put(&self, certified: CertifiedKey) {
        *self.certified.write() = Arc::new(certified);
    }

    fn get(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.certified.read())
    }
}

impl ResolvesServerCert for Hot {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.get())
    }
}
