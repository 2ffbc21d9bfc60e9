//! Which clients may post reviews: those with a certificate of an authority whose certificate is in a file. The file is read again now and
//! then, so that another authority needs no restart.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nudge_protocol::error_chain::chain;
use nudge_server::tls::server_config_for;
use parking_lot::RwLock;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme};
use tokio::time::sleep;

/// Why there is no authority for clients.
#[derive(Debug, thiserror::Error)]
pub enum ClientsError {
    /// The file.
    #[error("can't read the authority for clients in {}", path.display())]
    Read {
        /// Where.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file is not PEM.
    #[error("{} has no certificate in PEM", path.display())]
    Pem {
        /// Where.
        path: PathBuf,
        /// The fault.
        source: pem::Error,
    },
    /// Its certificates can't be used.
    #[error("the certificates in {} can't be used for the authority for clients", path.display())]
    Unusable {
        /// Where.
        path: PathBuf,
        /// The fault.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

type Verifier = Arc<dyn ClientCertVerifier>;

/// Accepts clients with a certificate of the authority in a file.
pub struct Clients {
    path: PathBuf,
    now: RwLock<(Vec<u8>, Verifier)>,
}

impl fmt::Debug for Clients {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Clients").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Clients {
    /// Reads the authority from a file (PEM).
    pub fn read(path: PathBuf) -> Result<Arc<Self>, ClientsError> {
        let bytes = std::fs::read(&path).map_err(|source| ClientsError::Read { path: path.clone(), source })?;
        let verifier = Self::parse(&path, &bytes)?;
        Ok(Arc::new(Self { path, now: RwLock::new((bytes, verifier)) }))
    }

    fn parse(path: &std::path::Path, bytes: &[u8]) -> Result<Verifier, ClientsError> {
        let unusable =
            |source: Box<dyn std::error::Error + Send + Sync>| ClientsError::Unusable { path: path.to_owned(), source };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(bytes) {
            let certificate = certificate.map_err(|source| ClientsError::Pem { path: path.to_owned(), source })?;
            roots.add(certificate).map_err(|error| unusable(error.into()))?;
        }
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider()));
        // An empty file is refused here.
        builder.build().map_err(|error| unusable(error.into()))
    }

    /// TLS with the certificates of `config` for these clients.
    pub fn server_config(self: &Arc<Self>, config: &ServerConfig) -> Result<ServerConfig, rustls::Error> {
        server_config_for(Arc::clone(&config.cert_resolver), Arc::clone(self) as Verifier)
    }

    /// Reads the file again every `check`, for ever. What can't be used changes nothing.
    pub async fn follow(self: Arc<Self>, check: Duration) {
        let mut failed = false;
        loop {
            sleep(check).await;
            match self.read_again() {
                Ok(changed) => {
                    if changed {
                        tracing::info!(path = %self.path.display(), "authority for clients read again");
                    }
                    failed = false;
                }
                Err(error) => {
                    if !failed {
                        tracing::warn!(
                            error = chain(&error),
                            "authority for clients not read again; the last one stays"
                        );
                    }
                    failed = true;
                }
            }
        }
    }

    /// Returns whether the file has changed.
    fn read_again(&self) -> Result<bool, ClientsError> {
        let read = |source| ClientsError::Read { path: self.path.clone(), source };
        let bytes = std::fs::read(&self.path).map_err(read)?;
        if self.now.read().0 == bytes {
            return Ok(false);
        }
        let verifier = Self::parse(&self.path, &bytes)?;
        *self.now.write() = (bytes, verifier);
        Ok(true)
    }

    fn verifier(&self) -> Verifier {
        Arc::clone(&self.now.read().1)
    }
}

impl ClientCertVerifier for Clients {
    /// None, so that clients show the certificate that they have.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.verifier().verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier().verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier().verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier().supported_verify_schemes()
    }
}
