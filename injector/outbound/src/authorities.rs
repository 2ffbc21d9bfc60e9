//! The authorities against which the certificates of servers are checked.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// The certificates of trusted authorities.
pub type Authorities = Arc<RootCertStore>;

/// Returns the authorities that this machine, or the image, trusts.
pub fn system_authorities() -> Authorities {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    Arc::new(roots)
}

/// Returns the authorities in a PEM file; `None` if one of them can't be read, or the file has none.
pub fn authorities_from_pem(text: &[u8]) -> Option<Authorities> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(text) {
        roots.add(certificate.ok()?).ok()?;
    }
    (!roots.is_empty()).then(|| Arc::new(roots))
}
