//! Confirms that this replica knows a config as the API server has it. This takes a read that began after the
//! connection; all polls that wait for it share one read.
//!
//! An agent that comes from another replica may not have learned of the newest revision there, because nothing changed
//! for its pod. This replica may be behind, and take an older version for a new version. Its watch does not show that:
//! bookmarks only show how current the API server's own cache is. A read without a resourceVersion does show it,
//! because the API server reads from etcd.

use std::collections::HashMap;
use std::error::Error;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use kube::{Api, Client};
use nudge_api::VersionedConfig;
use nudge_cluster::index::Index;
use nudge_cluster::jitter::with_jitter;
use nudge_cluster::lenient_object::Lenient;
use nudge_core::keys::ConfigKey;
use nudge_protocol::backoff::Backoff;
use nudge_protocol::error_chain::chain;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};

/// The maximum duration of one read.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// The delays after reads that have confirmed nothing. The longest is shorter than the wait of a poll for a
/// confirmation.
const READ_BACKOFF: Backoff = Backoff { first: Duration::from_millis(250), longest: Duration::from_secs(3) };
/// The delay until a slot is free again, if the API server has refused its read because it has too much to do.
const BUSY_SLOT_DELAY: Duration = Duration::from_millis(500);
/// The maximum number of reads at the same time.
const MAX_CONCURRENT_READS: usize = 16;

/// A source of configs as they are stored now.
pub trait ConfigSource: Send + Sync + 'static {
    /// Reads the config; `None` if there is none.
    fn read<'a>(&'a self, key: &'a ConfigKey) -> BoxFuture<'a, Result<Option<VersionedConfig>, ConfigError>>;
}

/// The reason why a config was not read.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The API server has too much to do.
    #[error("the API server has too much to do")]
    Busy,
    /// A later read may succeed.
    #[error("the config can't be read")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
}

/// Reads from the API server, which asks etcd; needs the right to get `versionedconfigs`.
impl ConfigSource for Client {
    fn read<'a>(&'a self, key: &'a ConfigKey) -> BoxFuture<'a, Result<Option<VersionedConfig>, ConfigError>> {
        Box::pin(async move {
            let api: Api<Lenient<VersionedConfig>> = Api::namespaced(self.clone(), &key.namespace);
            match api.get_opt(key.name.as_str()).await {
                Ok(config) => Ok(config.map(|Lenient(config)| config)),
                Err(kube::Error::Api(status)) if status.code == 429 => Err(ConfigError::Busy),
                Err(error) => Err(ConfigError::Unavailable(error.into())),
            }
        })
    }
}

/// The confirmation of one config.
#[derive(Default)]
struct Confirmation {
    /// The time until which all changes are known.
    until: watch::Sender<Option<Instant>>,
    /// The latest time that a poll waits for.
    needed: Option<Instant>,
    /// Whether the config is being read.
    is_reading: bool,
    /// The number of reads in a row that have confirmed nothing.
    failures: u32,
}

/// The confirmations of all configs.
pub(crate) struct Confirmations {
    index: Arc<Index>,
    source: Arc<dyn ConfigSource>,
    slots: Semaphore,
    by_config: Mutex<HashMap<ConfigKey, Confirmation>>,
}

impl Confirmations {
    pub(crate) fn new(index: Arc<Index>, source: Arc<dyn ConfigSource>) -> Arc<Self> {
        Arc::new(Self { index, source, slots: Semaphore::new(MAX_CONCURRENT_READS), by_config: Mutex::default() })
    }

    /// Returns whether the index has all changes of the config until `since`.
    pub(crate) fn is_confirmed(&self, key: &ConfigKey, since: Instant) -> bool {
        self.by_config.lock().get(key).is_some_and(|entry| *entry.until.borrow() >= Some(since))
    }

    /// Waits until the index has all changes of these configs until `since`.
    pub(crate) async fn wait_until_confirmed(self: &Arc<Self>, keys: &[ConfigKey], since: Instant) {
        let confirmations = keys.iter().map(|key| {
            let mut until = self.request_read(key, since);
            // The sender stays while a receiver waits.
            async move { drop(until.wait_for(|until| *until >= Some(since)).await) }
        });
        join_all(confirmations.collect::<Vec<_>>()).await;
    }

    fn request_read(self: &Arc<Self>, key: &ConfigKey, since: Instant) -> watch::Receiver<Option<Instant>> {
        let mut by_config = self.by_config.lock();
        let entry = by_config.entry(key.clone()).or_default();
        entry.needed = entry.needed.max(Some(since));
        let until = entry.until.subscribe();
        if *until.borrow() < Some(since) && !mem::replace(&mut entry.is_reading, true) {
            tokio::spawn(Arc::clone(self).read(key.clone()));
        }
        until
    }

    /// Reads until no poll waits for more.
    async fn read(self: Arc<Self>, key: ConfigKey) {
        loop {
            // The semaphore is never closed.
            let slot = self.slots.acquire().await;
            let began = Instant::now();
            let is_confirmed = match timeout(READ_TIMEOUT, self.source.read(&key)).await {
                Ok(Ok(config)) => self.index.put_read_config(&key, config),
                Ok(Err(error)) => {
                    tracing::debug!(config = %key, error = chain(&error), "config not confirmed");
                    if matches!(error, ConfigError::Busy) {
                        sleep(with_jitter(BUSY_SLOT_DELAY)).await;
                    }
                    false
                }
                Err(_) => false,
            };
            drop(slot);
            match self.record_read(&key, is_confirmed.then_some(began)) {
                Some(delay) => sleep(delay).await,
                None => return,
            }
        }
    }

    /// Records the result of a read. Returns the delay until the next one, if a poll waits for it.
    fn record_read(&self, key: &ConfigKey, until: Option<Instant>) -> Option<Duration> {
        let mut by_config = self.by_config.lock();
        let entry = by_config.get_mut(key)?;
        let delay = if until.is_some() {
            entry.until.send_replace(until);
            entry.failures = 0;
            Duration::ZERO
        } else {
            entry.failures = entry.failures.saturating_add(1);
            with_jitter(READ_BACKOFF.wait(entry.failures))
        };
        entry.is_reading = until < entry.needed && entry.until.receiver_count() > 0;
        entry.is_reading.then_some(delay)
    }

    /// Removes the configs that no poll waits for and no pod uses any more.
    pub(crate) fn retain(&self, is_used: impl Fn(&ConfigKey) -> bool) {
        self.by_config.lock().retain(|key, entry| entry.is_reading || entry.until.receiver_count() > 0 || is_used(key));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hyper::http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use tower::service_fn;

    use super::*;

    fn key(number: usize) -> ConfigKey {
        ConfigKey::parse("ns", &format!("shop-{number}")).unwrap()
    }

    /// Never has a config.
    struct Refusing {
        busy: bool,
        reads: AtomicUsize,
    }

    impl ConfigSource for Refusing {
        fn read<'a>(&'a self, _: &'a ConfigKey) -> BoxFuture<'a, Result<Option<VersionedConfig>, ConfigError>> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            let error = if self.busy { ConfigError::Busy } else { ConfigError::Unavailable("500".into()) };
            Box::pin(async { Err(error) })
        }
    }

    /// Returns the number of reads of `configs` unreadable configs in this time.
    async fn reads(busy: bool, configs: usize, millis: u64) -> usize {
        let source = Arc::new(Refusing { busy, reads: AtomicUsize::default() });
        let confirmations = Confirmations::new(Arc::default(), Arc::clone(&source) as _);
        let keys: Vec<ConfigKey> = (0..configs).map(key).collect();
        let waiting = confirmations.wait_until_confirmed(&keys, Instant::now());
        assert!(timeout(Duration::from_millis(millis), waiting).await.is_err());
        source.reads.load(Ordering::Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_read_is_read_ever_less_often() {
        let reads = reads(false, 1, 60_000).await;
        assert!((18..=30).contains(&reads), "{reads}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_with_too_much_to_do_is_asked_less_whatever_number_of_configs_waits() {
        assert_eq!(reads(false, 200, 100).await, 200);
        let reads = reads(true, 200, 1000).await;
        assert!((MAX_CONCURRENT_READS..=MAX_CONCURRENT_READS * 3).contains(&reads), "{reads}");
    }

    #[tokio::test]
    async fn a_config_is_read_whatever_a_user_wrote_into_its_managed_fields() {
        let service = service_fn(async |_: Request<Body>| {
            let metadata = json!({"name": "shop-1", "namespace": "ns", "managedFields": [{"time": "x"}]});
            let body = json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": metadata, "spec": {}});
            Response::builder()
                .body(Body::from(body.to_string().into_bytes()))
                .map_err(Box::<dyn Error + Send + Sync>::from)
        });
        let configs = Client::new(service, "ns");
        let found = ConfigSource::read(&configs, &key(1)).await.unwrap().unwrap();
        assert_eq!(found.metadata.name.as_deref(), Some("shop-1"));
    }
}
