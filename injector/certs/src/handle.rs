//! The certificates in use: what listeners serve, what clients are to trust, and the task that keeps both up to date.

use std::sync::Arc;
use std::time::Duration;

use nudge_cluster::jitter::jittered;
use nudge_protocol::error_chain::chain;
use nudge_server::tls::server_config;
use rustls::ServerConfig;
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::authority::{AuthorityError, Pair};
use super::certificate::Certificate;
use super::files::{CertificateFiles, FilesError};
use super::keeper::{KeepError, Keeper};
use super::lifetimes::{Lifetimes, LifetimesError};
use super::names::ServingNames;
use super::resolver::Hot;
use super::store::{SecretStore, StoreError};
use super::stored::Stored;

/// First and longest pause after a failure to get certificates at the start.
const RETRY: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(5)];

/// Why there are no certificates.
#[derive(Debug, thiserror::Error)]
pub enum CertificatesError {
    /// The lifetimes.
    #[error(transparent)]
    Lifetimes(#[from] LifetimesError),
    /// Those that the replicas keep.
    #[error(transparent)]
    Keep(#[from] KeepError),
    /// Those from files.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// The serving certificate can't be used for TLS.
    #[error(transparent)]
    Serving(#[from] AuthorityError),
    /// The TLS library refused its settings.
    #[error("TLS can't be set up")]
    Tls(#[from] rustls::Error),
}

/// The certificates in use. The task that keeps them ends with the handle.
#[derive(Debug)]
pub struct Certificates {
    config: Arc<ServerConfig>,
    expires: watch::Receiver<OffsetDateTime>,
    bundle: watch::Receiver<Arc<str>>,
    task: JoinHandle<()>,
}

impl Drop for Certificates {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Certificates {
    /// Makes certificates in `store`, or takes up those that are there, and keeps them. Until the store answers it is asked again;
    /// a store that is somebody else's is an error.
    pub async fn keep<S: SecretStore>(
        store: S,
        names: ServingNames,
        lifetimes: Lifetimes,
    ) -> Result<Self, CertificatesError> {
        let lifetimes = lifetimes.checked()?;
        let mut keeper = Keeper::new(store, names, lifetimes);
        let stored = first(&mut keeper).await?;
        let pair = stored.serving.as_ref().ok_or(KeepError::Restless)?;
        let (mut in_use, hot) = InUse::new(pair, &stored.bundle())?;
        let (expires, bundle) = in_use.subscribe();
        let task = tokio::spawn(async move {
            let mut faults = Faults::default();
            loop {
                sleep(jittered(lifetimes.check)).await;
                // By the wall clock, each time anew: a long timer would not see the clock step.
                let used = match keeper.settle(OffsetDateTime::now_utc).await {
                    Ok(stored) => in_use.take_stored(&stored),
                    Err(error) => Err(error.into()),
                };
                faults.note(used);
            }
        });
        Ok(Self { config: Arc::new(server_config(hot)?), expires, bundle, task })
    }

    /// Takes certificates from files, and looks at them again every `check`.
    pub fn from_files(files: CertificateFiles, check: Duration) -> Result<Self, CertificatesError> {
        let loaded = files.load()?;
        let (mut in_use, hot) = InUse::new(&loaded.pair, &loaded.bundle)?;
        let (expires, bundle) = in_use.subscribe();
        let task = tokio::spawn(async move {
            let mut faults = Faults::default();
            loop {
                sleep(jittered(check)).await;
                let loaded = files.load().map_err(CertificatesError::from);
                faults.note(loaded.and_then(|loaded| in_use.take(&loaded.pair, &loaded.bundle)));
            }
        });
        Ok(Self { config: Arc::new(server_config(hot)?), expires, bundle, task })
    }

    /// Settings for listeners: TLS 1.2 and 1.3, HTTP/1.1, always the newest certificate.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    /// What clients are to trust, PEM; empty where there is nothing to publish. It lives on when the handle is dropped, but
    /// changes no more.
    pub fn ca_bundle(&self) -> watch::Receiver<Arc<str>> {
        self.bundle.clone()
    }

    /// When the certificate that is served expires: for a metric.
    pub fn expires(&self) -> OffsetDateTime {
        *self.expires.borrow()
    }
}

/// What is served and published, from the side that changes it.
#[derive(Debug)]
struct InUse {
    certificate: Certificate,
    hot: Arc<Hot>,
    expires: watch::Sender<OffsetDateTime>,
    bundle: watch::Sender<Arc<str>>,
}

impl InUse {
    fn new(pair: &Pair, bundle: &str) -> Result<(Self, Arc<Hot>), CertificatesError> {
        let hot = Arc::new(Hot::new(pair.certified()?));
        let certificate = pair.certificate().clone();
        let expires = watch::Sender::new(certificate.not_after());
        let bundle = watch::Sender::new(Arc::from(bundle));
        Ok((Self { certificate, hot: Arc::clone(&hot), expires, bundle }, hot))
    }

    fn subscribe(&self) -> (watch::Receiver<OffsetDateTime>, watch::Receiver<Arc<str>>) {
        (self.expires.subscribe(), self.bundle.subscribe())
    }

    fn take_stored(&mut self, stored: &Stored) -> Result<(), CertificatesError> {
        let pair = stored.serving.as_ref().ok_or(KeepError::Restless)?;
        self.take(pair, &stored.bundle())
    }

    fn take(&mut self, pair: &Pair, bundle: &str) -> Result<(), CertificatesError> {
        if &self.certificate != pair.certificate() {
            self.hot.put(pair.certified()?);
            self.certificate = pair.certificate().clone();
            self.expires.send_replace(self.certificate.not_after());
            tracing::info!(until = %self.certificate.not_after(), "serving another certificate");
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

/// Says what fails once, and once that it is over.
#[derive(Debug, Default)]
struct Faults(Option<String>);

impl Faults {
    fn note(&mut self, result: Result<(), CertificatesError>) {
        let fault = result.err().map(|error| chain(&error));
        if fault == self.0 {
            return;
        }
        if let Some(fault) = &fault {
            tracing::error!("the certificates stay as they were: {fault}");
        } else {
            tracing::info!("the certificates can be kept up to date again");
        }
        self.0 = fault;
    }
}

/// The first certificates: there is nothing to do without them.
async fn first<S: SecretStore>(keeper: &mut Keeper<S>) -> Result<Stored, KeepError> {
    let [mut pause, longest] = RETRY;
    loop {
        match keeper.settle(OffsetDateTime::now_utc).await {
            Err(error @ (KeepError::Store(StoreError::Api { .. }) | KeepError::TooSlow)) => {
                tracing::warn!("no certificates yet: {}", chain(&error));
                sleep(jittered(pause)).await;
                pause = (pause * 2).min(longest);
            }
            settled => return settled,
        }
    }
}
