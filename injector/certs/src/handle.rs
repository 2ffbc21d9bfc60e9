//! The certificates in use: the serving certificate of listeners, the CA certificates that clients trust, and the
//! rotation of both.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use nudge_cluster::jitter::with_jitter;
use nudge_protocol::backoff::Backoff;
use nudge_protocol::error_chain::chain;
use nudge_server::tls::server_config;
use rustls::ServerConfig;
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::sleep;

use super::authority::{AuthorityError, Pair};
use super::certificate::Certificate;
use super::chain::Trust;
use super::files::{CertificateFiles, FilesError};
use super::keeper::{KeepError, Keeper, Stores};
use super::lifetimes::{Lifetimes, LifetimesError};
use super::names::ServingNames;
use super::resolver::NewestCertificate;
use super::store::{SecretStore, StoreError};
use super::stored::Stored;

/// The delays after failures to read the first certificates.
const FIRST_READ_BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(5) };

/// The reason why there are no certificates.
#[derive(Debug, thiserror::Error)]
pub enum CertificatesError {
    /// The lifetimes leave no time for a rotation.
    #[error(transparent)]
    Lifetimes(#[from] LifetimesError),
    /// The keeper can't manage the certificates in the Secrets.
    #[error(transparent)]
    Keep(#[from] KeepError),
    /// The certificate files can't be used.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// The serving certificate can't be used for TLS.
    #[error(transparent)]
    Serving(#[from] AuthorityError),
    /// The TLS library refused its settings.
    #[error("TLS can't be set up")]
    Tls(#[from] rustls::Error),
}

/// The task that keeps the certificates up to date. It never ends.
pub type Rotation = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The certificates in use.
#[derive(Debug)]
pub struct Certificates {
    config: Arc<ServerConfig>,
    serving: watch::Receiver<Arc<Pair>>,
    bundle: watch::Receiver<Arc<str>>,
}

impl Certificates {
    /// Keeps the certificates in the stores, and uses them. Retries until the stores answer. A store that belongs to
    /// somebody else is an error.
    pub async fn keep<S: SecretStore>(
        stores: Stores<S>,
        names: ServingNames,
        lifetimes: Lifetimes,
    ) -> Result<(Self, Rotation), CertificatesError> {
        let lifetimes = lifetimes.checked()?;
        let mut keeper = Keeper::new(stores, names, lifetimes);
        let stored = load_first(&mut keeper).await?;
        let pair = stored.serving.as_ref().ok_or(KeepError::Restless)?;
        let (certificates, mut in_use) = Self::new(pair, &stored.bundle())?;
        let rotation = async move {
            let mut faults = RotationLog::default();
            loop {
                sleep(with_jitter(lifetimes.check)).await;
                // The wall clock is read each time, because a long timer does not notice that somebody sets the clock.
                let stored = keeper.settle(OffsetDateTime::now_utc).await;
                faults.log(stored.map_err(CertificatesError::from).and_then(|stored| {
                    let pair = stored.serving.as_ref().ok_or(KeepError::Restless)?;
                    in_use.update(pair, &stored.bundle())
                }));
            }
        };
        Ok((certificates, Box::pin(rotation)))
    }

    /// Uses the certificates in files, which are read again every `check`.
    pub fn from_files(files: CertificateFiles, check: Duration) -> Result<(Self, Rotation), CertificatesError> {
        let contents = files.load()?;
        let (certificates, mut in_use) = Self::new(&contents.pair, &contents.bundle)?;
        let rotation = async move {
            let mut faults = RotationLog::default();
            loop {
                sleep(with_jitter(check)).await;
                let contents = files.load().map_err(CertificatesError::from);
                faults.log(contents.and_then(|contents| in_use.update(&contents.pair, &contents.bundle)));
            }
        };
        Ok((certificates, Box::pin(rotation)))
    }

    fn new(pair: &Pair, bundle: &str) -> Result<(Self, InUse), CertificatesError> {
        let resolver = Arc::new(NewestCertificate::new(pair.certified_key()?));
        let (serving, bundle) = (watch::Sender::new(Arc::new(pair.clone())), watch::Sender::new(Arc::from(bundle)));
        let config = Arc::new(server_config(resolver.clone())?);
        let certificates = Self { config, serving: serving.subscribe(), bundle: bundle.subscribe() };
        Ok((certificates, InUse { resolver, serving, bundle }))
    }

    /// Returns the settings of listeners: TLS 1.2 and 1.3, HTTP/1.1, and always the newest certificate.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    /// Returns the CA certificates that clients trust, PEM; empty if there is nothing to publish. The bundle changes
    /// only while the rotation runs.
    pub fn ca_bundle(&self) -> watch::Receiver<Arc<str>> {
        self.bundle.clone()
    }

    /// Returns the expiry of the serving certificate.
    pub fn expires(&self) -> OffsetDateTime {
        self.serving.borrow().certificate().not_after()
    }

    /// Returns who trusts the serving certificate now; `None` if none of the CA certificates has signed it.
    pub fn trust(&self) -> Option<Trust> {
        let bundle = Certificate::all_from_pem(&self.bundle.borrow());
        Trust::of(&self.serving.borrow(), &bundle, OffsetDateTime::now_utc())
    }
}

/// The certificates that are served and published, as the rotation changes them.
#[derive(Debug)]
struct InUse {
    resolver: Arc<NewestCertificate>,
    serving: watch::Sender<Arc<Pair>>,
    bundle: watch::Sender<Arc<str>>,
}

impl InUse {
    fn update(&mut self, pair: &Pair, bundle: &str) -> Result<(), CertificatesError> {
        if !self.serving.borrow().has_same_certificates(pair) {
            self.resolver.set(pair.certified_key()?);
            self.serving.send_replace(Arc::new(pair.clone()));
            tracing::info!(expires = %pair.certificate().not_after(), "serving certificate replaced");
        }
        self.bundle.send_if_modified(|published| {
            let differs = &**published != bundle;
            if differs {
                *published = Arc::from(bundle);
            }
            differs
        });
        Ok(())
    }
}

/// The log of a failure: once while it lasts, and once when it ends.
#[derive(Debug, Default)]
struct RotationLog(Option<String>);

impl RotationLog {
    fn log(&mut self, result: Result<(), CertificatesError>) {
        let fault = result.err().map(|error| chain(&error));
        if fault == self.0 {
            return;
        }
        if let Some(error) = &fault {
            tracing::error!(error, "certificate rotation failed; the certificates in use stay, retrying");
        } else {
            tracing::info!("certificate rotation recovered");
        }
        self.0 = fault;
    }
}

/// Reads or makes the first certificates. Nothing can be served before.
async fn load_first<S: SecretStore>(keeper: &mut Keeper<S>) -> Result<Stored, KeepError> {
    let mut failures = 0;
    loop {
        match keeper.settle(OffsetDateTime::now_utc).await {
            Err(error @ KeepError::Store(StoreError::Call(_) | StoreError::Missing(_))) => {
                tracing::warn!(error = chain(&error), "reading the first certificates failed; retrying");
                failures += 1;
                sleep(with_jitter(FIRST_READ_BACKOFF.wait(failures))).await;
            }
            result => return result,
        }
    }
}
