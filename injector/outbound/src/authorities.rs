//! The authorities that certificates of servers are checked by.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// The authorities that are trusted.
pub type Authorities = Arc<RootCertStore>;

/// The authorities that this machine, or the image, trusts.
pub fn of_image() -> Authorities {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    Arc::new(roots)
}

/// The authorities in a PEM file; `None` if one can't be read, or the file holds none.
pub fn of_pem(text: &[u8]) -> Option<Authorities> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(text) {
        roots.add(certificate.ok()?).ok()?;
    }
    (!roots.is_empty()).then(|| Arc::new(roots))
}
