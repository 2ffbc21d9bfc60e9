//! The contents that pods need now: each fetched once, shared, bounded, and dropped when no pod needs it any more.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use nudge_api::VersionStatus;
use nudge_cluster::jitter::with_jitter;
use nudge_core::derived_keys::ContentKey;
use nudge_core::identity::Identity;
use nudge_core::keys::ConfigKey;
use nudge_core::versions::Seals;
use nudge_protocol::backoff::Backoff;
use nudge_protocol::error_chain::chain;
use nudge_protocol::hub::HubProblem;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep};

use super::content::Content;
use super::fetch::{Fetch, FetchError};
use super::parts::PartSource;
use crate::metrics::{FetchResult, Metrics};
use crate::settings::Settings;

/// The delays after failures that may pass.
const FETCH_BACKOFF: Backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(10) };
/// The delay until a version with a lasting problem is read again.
const PROBLEM_RETRY_DELAY: Duration = Duration::from_secs(15);

/// The result of a search for a content.
pub(crate) enum ContentLookup {
    Content(Arc<Content>),
    /// There is no content, and the next check is useful at the given time.
    Problem(Arc<HubProblem>, Instant),
    /// The content is being fetched. The receiver changes when that has ended.
    Fetching(watch::Receiver<()>),
}

enum ContentState {
    Fetching,
    Ready(Arc<Content>),
    Failed(Arc<HubProblem>, Instant),
}

struct ContentEntry {
    fetch: Arc<Fetch>,
    last_used: Instant,
    state: ContentState,
    fetched: watch::Sender<()>,
}

impl ContentEntry {
    fn bytes(&self) -> usize {
        match &self.state {
            ContentState::Ready(content) => content.block.len(),
            ContentState::Fetching | ContentState::Failed(..) => 0,
        }
    }
}

/// A version of a config.
#[derive(Clone, PartialEq, Eq, Hash)]
struct VersionKey {
    config_uid: String,
    version: String,
}

#[derive(Default)]
struct ContentEntries {
    by_version: HashMap<VersionKey, ContentEntry>,
    bytes: usize,
}

/// The contents that pods need.
pub(crate) struct ContentStore {
    source: Arc<dyn PartSource>,
    key: Arc<ContentKey>,
    slots: Semaphore,
    settings: Arc<Settings>,
    metrics: Metrics,
    /// The runtime that fetches contents; callers may run on another runtime.
    runtime: Handle,
    entries: Mutex<ContentEntries>,
}

impl ContentStore {
    pub(crate) fn new(
        source: Arc<dyn PartSource>,
        key: Arc<ContentKey>,
        settings: &Arc<Settings>,
        metrics: Metrics,
    ) -> Arc<Self> {
        Arc::new(Self {
            source,
            key,
            slots: Semaphore::new(settings.max_fetches),
            settings: Arc::clone(settings),
            metrics,
            runtime: Handle::current(),
            entries: Mutex::default(),
        })
    }

    /// Returns the seals of a config.
    pub(super) fn seals(&self, key: &ConfigKey, identity: Identity) -> Seals {
        Seals::new(&self.key, key, identity)
    }

    /// Returns the content of a sealed version, or begins to fetch it.
    pub(crate) fn find_or_fetch(
        self: &Arc<Self>,
        key: &ConfigKey,
        config_uid: &str,
        identity: Identity,
        version: &VersionStatus,
    ) -> ContentLookup {
        let now = Instant::now();
        let mut entries = self.entries.lock();
        let version_key = VersionKey { config_uid: config_uid.to_owned(), version: version.version.clone() };
        let entry = entries.by_version.get_mut(&version_key);
        if let Some(entry) =
            entry.filter(|entry| entry.fetch.parts == version.parts && entry.fetch.namespace == key.namespace)
        {
            entry.last_used = now;
            match &entry.state {
                ContentState::Ready(content) => return ContentLookup::Content(Arc::clone(content)),
                ContentState::Failed(problem, next_check) if *next_check > now => {
                    return ContentLookup::Problem(Arc::clone(problem), *next_check);
                }
                ContentState::Failed(..) => {}
                ContentState::Fetching => return ContentLookup::Fetching(entry.fetched.subscribe()),
            }
        }
        entries.remove(&version_key);
        let fetch = Arc::new(Fetch {
            namespace: key.namespace.clone(),
            config_uid: config_uid.to_owned(),
            version: version.version.clone(),
            seals: self.seals(key, identity),
            parts: version.parts.clone(),
        });
        let (fetched, receiver) = watch::channel(());
        let entry = ContentEntry { fetch: Arc::clone(&fetch), last_used: now, state: ContentState::Fetching, fetched };
        entries.by_version.insert(version_key, entry);
        self.runtime.spawn(Arc::clone(self).fetch(fetch));
        ContentLookup::Fetching(receiver)
    }

    /// Reads until there is a content or a problem that does not pass, as long as the result is needed.
    async fn fetch(self: Arc<Self>, fetch: Arc<Fetch>) {
        let mut failures = 0;
        while self.entries.lock().waiting_for(&fetch).is_some() {
            match fetch.run(&*self.source, &self.slots).await {
                Ok(content) => return self.finish(&fetch, Ok(content)),
                Err(FetchError::Problem(problem)) => return self.finish(&fetch, Err(problem)),
                Err(FetchError::Passing(error)) => {
                    self.metrics.count_fetch(FetchResult::Unavailable);
                    let (namespace, version, error) = (&fetch.namespace, &fetch.version, chain(&error));
                    tracing::debug!(namespace, version, error, "version not read; retrying");
                }
            }
            failures += 1;
            sleep(with_jitter(FETCH_BACKOFF.wait(failures))).await;
        }
    }

    fn finish(&self, fetch: &Arc<Fetch>, result: Result<Content, HubProblem>) {
        self.metrics.count_fetch(if result.is_ok() { FetchResult::Good } else { FetchResult::Refused });
        let mut entries = self.entries.lock();
        let Some(entry) = entries.waiting_for(fetch) else { return };
        let mut new_bytes = 0;
        entry.state = match result {
            Ok(content) => {
                new_bytes = content.block.len();
                ContentState::Ready(Arc::new(content))
            }
            Err(problem) => {
                let (namespace, version, message) = (&fetch.namespace, &fetch.version, &problem.message);
                tracing::warn!(namespace, version, message, "version not served");
                ContentState::Failed(Arc::new(problem), Instant::now() + with_jitter(PROBLEM_RETRY_DELAY))
            }
        };
        entry.fetched.send_replace(());
        entries.bytes += new_bytes;
        while entries.bytes > self.settings.max_content_bytes && entries.drop_oldest(fetch) {}
        self.update_metrics(&entries);
    }

    /// Drops the contents that no pod needs, by the uid of the config and the version.
    pub(crate) fn retain(&self, is_needed: impl Fn(&str, &str) -> bool) {
        let now = Instant::now();
        let mut entries = self.entries.lock();
        let ContentEntries { by_version, bytes } = &mut *entries;
        let old = by_version.extract_if(|key, entry| {
            now.duration_since(entry.last_used) > self.settings.max_unused_age
                && !is_needed(&key.config_uid, &key.version)
        });
        *bytes -= old.map(|(_, entry)| entry.bytes()).sum::<usize>();
        self.update_metrics(&entries);
    }

    fn update_metrics(&self, entries: &ContentEntries) {
        self.metrics.set_contents(entries.by_version.len(), entries.bytes);
    }
}

impl ContentEntries {
    /// Returns the entry that waits for this fetch; `None` if its result is not needed any more.
    fn waiting_for(&mut self, fetch: &Arc<Fetch>) -> Option<&mut ContentEntry> {
        let key = VersionKey { config_uid: fetch.config_uid.clone(), version: fetch.version.clone() };
        let entry = self.by_version.get_mut(&key)?;
        Arc::ptr_eq(&entry.fetch, fetch).then_some(entry)
    }

    fn remove(&mut self, key: &VersionKey) {
        self.bytes -= self.by_version.remove(key).map_or(0, |entry| entry.bytes());
    }

    /// Drops the content that was used longest ago, except that of this fetch.
    fn drop_oldest(&mut self, fetch: &Arc<Fetch>) -> bool {
        let is_ready =
            |entry: &ContentEntry| matches!(entry.state, ContentState::Ready(_)) && !Arc::ptr_eq(&entry.fetch, fetch);
        let ready = self.by_version.iter().filter(|(_, entry)| is_ready(entry));
        let oldest = ready.min_by_key(|(_, entry)| entry.last_used).map(|(key, _)| key.clone());
        oldest.inspect(|key| self.remove(key)).is_some()
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
