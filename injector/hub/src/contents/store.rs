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

/// Waits after failures that may pass.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(10) };
/// After how long a version is read again whose problem does not pass by itself.
const PROBLEM_RETRY: Duration = Duration::from_secs(15);

/// What the store has of a version.
pub(crate) enum ContentLookup {
    Content(Arc<Content>),
    /// There is no content, and another look is worthwhile at the given time.
    Problem(Arc<HubProblem>, Instant),
    /// The content is being fetched; changes when that has ended.
    Fetching(watch::Receiver<()>),
}

enum ContentState {
    Fetching,
    Ready(Arc<Content>),
    Failed(Arc<HubProblem>, Instant),
}

struct ContentEntry {
    fetch: Arc<Fetch>,
    used: Instant,
    state: ContentState,
    end: watch::Sender<()>,
}

#[derive(Default)]
struct ContentEntries {
    /// By uid of the config and version.
    by_config: HashMap<String, HashMap<String, ContentEntry>>,
    bytes: usize,
}

/// The contents that pods need.
pub(crate) struct ContentStore {
    source: Arc<dyn PartSource>,
    key: Arc<ContentKey>,
    slots: Semaphore,
    settings: Arc<Settings>,
    metrics: Metrics,
    /// Where contents are fetched: who looks may run elsewhere.
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
            slots: Semaphore::new(settings.fetches),
            settings: Arc::clone(settings),
            metrics,
            runtime: Handle::current(),
            entries: Mutex::default(),
        })
    }

    /// Returns the content of a sealed version, or how far it is. Begins to fetch what is missing.
    pub(crate) fn look(
        self: &Arc<Self>,
        key: &ConfigKey,
        config_uid: &str,
        identity: Identity,
        version: &VersionStatus,
    ) -> ContentLookup {
        let now = Instant::now();
        let mut entries = self.entries.lock();
        let entry = entries.by_config.get_mut(config_uid).and_then(|versions| versions.get_mut(&version.version));
        if let Some(entry) =
            entry.filter(|entry| entry.fetch.parts == version.parts && entry.fetch.namespace == key.namespace)
        {
            entry.used = now;
            match &entry.state {
                ContentState::Ready(content) => return ContentLookup::Content(Arc::clone(content)),
                ContentState::Failed(problem, again) if *again > now => {
                    return ContentLookup::Problem(Arc::clone(problem), *again);
                }
                ContentState::Failed(..) => {}
                ContentState::Fetching => return ContentLookup::Fetching(entry.end.subscribe()),
            }
        }
        entries.remove(config_uid, &version.version);
        let fetch = Arc::new(Fetch {
            namespace: key.namespace.clone(),
            config_uid: config_uid.to_owned(),
            version: version.version.clone(),
            seals: Seals::new(&self.key, key, identity),
            parts: version.parts.clone(),
        });
        let (end, ended) = watch::channel(());
        let entry = ContentEntry { fetch: Arc::clone(&fetch), used: now, state: ContentState::Fetching, end };
        entries.by_config.entry(config_uid.to_owned()).or_default().insert(version.version.clone(), entry);
        self.runtime.spawn(Arc::clone(self).fetch(fetch));
        ContentLookup::Fetching(ended)
    }

    /// Reads until there is a content or a problem that does not pass, as long as the result is needed.
    async fn fetch(self: Arc<Self>, fetch: Arc<Fetch>) {
        let mut failures = 0;
        while self.entries.lock().of_fetch(&fetch).is_some() {
            match fetch.run(&*self.source, &self.slots).await {
                Ok(content) => return self.finish(&fetch, Ok(content)),
                Err(FetchError::Problem(problem)) => return self.finish(&fetch, Err(problem)),
                Err(FetchError::Passing(error)) => {
                    self.metrics.fetched(FetchResult::Unavailable);
                    let (namespace, version, error) = (&fetch.namespace, &fetch.version, chain(&error));
                    tracing::debug!(namespace, version, error, "version not read; retrying");
                }
            }
            failures += 1;
            sleep(with_jitter(BACKOFF.wait(failures))).await;
        }
    }

    fn finish(&self, fetch: &Arc<Fetch>, result: Result<Content, HubProblem>) {
        self.metrics.fetched(if result.is_ok() { FetchResult::Good } else { FetchResult::Refused });
        let mut entries = self.entries.lock();
        let Some(entry) = entries.of_fetch(fetch) else { return };
        let mut new_bytes = 0;
        entry.state = match result {
            Ok(content) => {
                new_bytes = content.block.len();
                ContentState::Ready(Arc::new(content))
            }
            Err(problem) => {
                let (namespace, version, message) = (&fetch.namespace, &fetch.version, &problem.message);
                tracing::warn!(namespace, version, message, "version not served");
                ContentState::Failed(Arc::new(problem), Instant::now() + with_jitter(PROBLEM_RETRY))
            }
        };
        entry.end.send_replace(());
        entries.bytes += new_bytes;
        while entries.bytes > self.settings.content_bytes && entries.drop_oldest(fetch) {}
        self.show(&entries);
    }

    /// Drops what no pod needs: `needed` says so of the uid of a config and a version.
    pub(crate) fn retain(&self, needed: impl Fn(&str, &str) -> bool) {
        let now = Instant::now();
        let mut entries = self.entries.lock();
        let is_old = |uid: &str, version: &str, entry: &ContentEntry| {
            now.duration_since(entry.used) > self.settings.unused && !needed(uid, version)
        };
        let old = entries.iter().filter(|(uid, version, entry)| is_old(uid, version, entry));
        let old: Vec<(String, String)> = old.map(|(uid, version, _)| (uid.clone(), version.clone())).collect();
        for (uid, version) in old {
            entries.remove(&uid, &version);
        }
        self.show(&entries);
    }

    fn show(&self, entries: &ContentEntries) {
        self.metrics.contents(entries.iter().count(), entries.bytes);
    }
}

impl ContentEntries {
    /// Returns all entries, with the uid of the config and the version.
    fn iter(&self) -> impl Iterator<Item = (&String, &String, &ContentEntry)> {
        let of_config = |(uid, versions)| HashMap::iter(versions).map(move |(version, entry)| (uid, version, entry));
        self.by_config.iter().flat_map(of_config)
    }

    /// Returns the entry that waits for this fetch; `None` where its result is not needed any more.
    fn of_fetch(&mut self, fetch: &Arc<Fetch>) -> Option<&mut ContentEntry> {
        let entry = self.by_config.get_mut(&fetch.config_uid)?.get_mut(&fetch.version)?;
        Arc::ptr_eq(&entry.fetch, fetch).then_some(entry)
    }

    fn remove(&mut self, config_uid: &str, version: &str) {
        let Some(versions) = self.by_config.get_mut(config_uid) else { return };
        if let Some(ContentEntry { state: ContentState::Ready(content), .. }) = versions.remove(version) {
            self.bytes -= content.block.len();
        }
        if versions.is_empty() {
            self.by_config.remove(config_uid);
        }
    }

    /// Drops the content that was needed longest ago, but for the one of this fetch.
    fn drop_oldest(&mut self, fetch: &Arc<Fetch>) -> bool {
        let is_ready =
            |entry: &ContentEntry| matches!(entry.state, ContentState::Ready(_)) && !Arc::ptr_eq(&entry.fetch, fetch);
        let ready = self.iter().filter(|(_, _, entry)| is_ready(entry));
        let oldest = ready.min_by_key(|(_, _, entry)| entry.used).map(|(uid, name, _)| (uid.clone(), name.clone()));
        oldest.inspect(|(uid, version)| self.remove(uid, version)).is_some()
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
