//! The authority for clients. A client needs one of its certificates to post reviews. The authority's file is read
//! again now and then, so that a new authority needs no restart.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
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

/// The reason why there is no authority for clients.
#[derive(Debug, thiserror::Error)]
pub enum ClientAuthorityError {
    /// The file can't be read.
    #[error("can't read the authority for clients in {}", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file is not PEM.
    #[error("{} has no certificate in PEM", path.display())]
    Pem {
        /// The path of the file.
        path: PathBuf,
        /// The error of the parser.
        source: pem::Error,
    },
    /// The certificates can't be used.
    #[error("the certificates in {} can't be used for the authority for clients", path.display())]
    Unusable {
        /// The path of the file.
        path: PathBuf,
        /// The error of the parser.
        source: Box<dyn Error + Send + Sync>,
    },
}

type Verifier = Arc<dyn ClientCertVerifier>;

/// The authority for clients in a file.
pub struct ClientAuthority {
    path: PathBuf,
    current: RwLock<ReadAuthority>,
}

/// The authority as it was last read.
struct ReadAuthority {
    pem: Vec<u8>,
    verifier: Verifier,
}

impl fmt::Debug for ClientAuthority {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ClientAuthority").field("path", &self.path).finish_non_exhaustive()
    }
}

impl ClientAuthority {
    /// Reads the authority from a file (PEM).
    pub fn read(path: PathBuf) -> Result<Arc<Self>, ClientAuthorityError> {
        let current = RwLock::new(ReadAuthority::read(&path)?);
        Ok(Arc::new(Self { path, current }))
    }

    /// Returns the TLS settings with the certificates of `config` for these clients.
    pub fn server_config(self: &Arc<Self>, config: &ServerConfig) -> Result<ServerConfig, rustls::Error> {
        server_config_for(Arc::clone(&config.cert_resolver), Arc::clone(self) as Verifier)
    }

    /// Reads the file again at each interval, for ever. A file that can't be used changes nothing.
    pub async fn follow(self: Arc<Self>, interval: Duration) {
        let mut has_failed = false;
        loop {
            sleep(interval).await;
            match self.read_again() {
                Ok(is_changed) => {
                    if is_changed {
                        tracing::info!(path = %self.path.display(), "authority for clients read again");
                    }
                    has_failed = false;
                }
                Err(error) => {
                    if !has_failed {
                        tracing::warn!(
                            error = chain(&error),
                            "authority for clients not read again; the last one stays"
                        );
                    }
                    has_failed = true;
                }
            }
        }
    }

    /// Reads the file again, and returns whether it has changed.
    fn read_again(&self) -> Result<bool, ClientAuthorityError> {
        let read = ReadAuthority::read(&self.path)?;
        let is_changed = self.current.read().pem != read.pem;
        *self.current.write() = read;
        Ok(is_changed)
    }

    fn verifier(&self) -> Verifier {
        Arc::clone(&self.current.read().verifier)
    }
}

impl ReadAuthority {
    fn read(path: &Path) -> Result<Self, ClientAuthorityError> {
        let path = || path.to_owned();
        let pem = std::fs::read(path()).map_err(|source| ClientAuthorityError::Read { path: path(), source })?;
        let unusable = |source: Box<dyn Error + Send + Sync>| ClientAuthorityError::Unusable { path: path(), source };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|source| ClientAuthorityError::Pem { path: path(), source })?;
            roots.add(certificate).map_err(|error| unusable(error.into()))?;
        }
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider()));
        // An empty file is refused here.
        let verifier = builder.build().map_err(|error| unusable(error.into()))?;
        Ok(Self { pem, verifier })
    }
}

impl ClientCertVerifier for ClientAuthority {
    /// Returns no subjects, so that clients show the certificate that they have.
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
