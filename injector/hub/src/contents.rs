//! The contents that pods need now: each fetched once, shared, bounded, dropped when no pod needs it any more.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use nudge_api::{PartStatus, VersionStatus};
use nudge_cluster::jitter::jittered;
use nudge_core::identity::Identity;
use nudge_core::keys::ConfigKey;
use nudge_core::versions::Seals;
use nudge_protocol::backoff::Backoff;
use nudge_protocol::error_chain::chain;
use nudge_protocol::hub::{HubProblem, HubReason};
use parking_lot::{Mutex, MutexGuard};
use ring::hmac;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};

use super::content::{Content, assemble, changed, problem};
use super::metrics::{FetchResult, Metrics};
use super::settings::Settings;
use super::source::{Part, PartError, PartSource};

/// How long one read may take.
const READ: Duration = Duration::from_secs(10);
/// Waits after failures that may pass.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(10) };
/// After how long a problem that does not pass by itself is looked at again.
const AGAIN: Duration = Duration::from_secs(15);

/// What is known of a content.
pub(super) enum Found {
    /// It is there.
    Content(Arc<Content>),
    /// It can't be had; worth another look at the given time.
    Problem(Arc<HubProblem>, Instant),
    /// It is being fetched; changes when that has ended.
    Fetching(watch::Receiver<()>),
}

enum State {
    Fetching,
    Ready(Arc<Content>),
    Failed(Arc<HubProblem>, Instant),
}

struct Entry {
    namespace: String,
    parts: Vec<PartStatus>,
    number: u64,
    used: Instant,
    state: State,
    landed: watch::Sender<()>,
}

#[derive(Default)]
struct Inner {
    /// By uid of the config and version.
    entries: HashMap<String, HashMap<String, Entry>>,
    bytes: usize,
    fetches: u64,
}

/// The contents.
pub(super) struct ContentStore {
    source: Arc<dyn PartSource>,
    key: Arc<hmac::Key>,
    slots: Semaphore,
    bound: usize,
    unused: Duration,
    metrics: Metrics,
    /// Where contents are fetched: who looks may run elsewhere.
    runtime: Handle,
    inner: Mutex<Inner>,
}

impl ContentStore {
    pub(super) fn new(
        source: Arc<dyn PartSource>,
        key: Arc<hmac::Key>,
        settings: &Settings,
        metrics: Metrics,
    ) -> Arc<Self> {
        Arc::new(Self {
            source,
            key,
            slots: Semaphore::new(settings.fetches),
            bound: settings.content_bytes,
            unused: settings.unused,
            metrics,
            runtime: Handle::current(),
            inner: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// The content of a sealed version, or how far it is. Starts what is missing.
    pub(super) fn look(
        self: &Arc<Self>,
        key: &ConfigKey,
        config_uid: &str,
        identity: Identity,
        version: &VersionStatus,
    ) -> Found {
        let now = Instant::now();
        let mut inner = self.lock();
        let known = inner.entries.get_mut(config_uid).and_then(|versions| versions.get_mut(&version.version));
        if let Some(entry) = known.filter(|entry| entry.parts == version.parts && entry.namespace == key.namespace) {
            entry.used = now;
            match &entry.state {
                State::Ready(content) => return Found::Content(Arc::clone(content)),
                State::Failed(problem, again) if *again > now => return Found::Problem(Arc::clone(problem), *again),
                State::Failed(..) => {}
                State::Fetching => return Found::Fetching(entry.landed.subscribe()),
            }
        }
        inner.remove(config_uid, &version.version);
        inner.fetches += 1;
        let entry = Entry {
            namespace: key.namespace.clone(),
            parts: version.parts.clone(),
            number: inner.fetches,
            used: now,
            state: State::Fetching,
            landed: watch::Sender::new(()),
        };
        let landed = entry.landed.subscribe();
        let job = Job {
            namespace: key.namespace.clone(),
            seals: Seals::new(&self.key, key, identity),
            config_uid: config_uid.to_owned(),
            version: version.version.clone(),
            parts: version.parts.clone(),
            number: entry.number,
        };
        inner.entries.entry(config_uid.to_owned()).or_default().insert(version.version.clone(), entry);
        self.runtime.spawn(fetch(Arc::clone(self), job));
        Found::Fetching(landed)
    }

    /// Drops what no pod needs: `needed` says so of the uid of a config and a version.
    pub(super) fn retain(&self, needed: impl Fn(&str, &str) -> bool) {
        let now = Instant::now();
        let mut inner = self.lock();
        let ids = inner
            .entries
            .iter()
            .flat_map(|(uid, versions)| versions.iter().map(move |(name, entry)| (uid, name, entry)));
        let old = ids.filter(|(uid, name, entry)| now.duration_since(entry.used) > self.unused && !needed(uid, name));
        let old: Vec<(String, String)> = old.map(|(uid, name, _)| (uid.clone(), name.clone())).collect();
        for (uid, name) in old {
            inner.remove(&uid, &name);
        }
        self.show(&inner);
    }

    /// Whether the result of a fetch is still needed.
    fn wants(&self, job: &Job) -> bool {
        self.lock().entry(job).is_some()
    }

    fn land(&self, job: &Job, result: Result<Content, HubProblem>) {
        self.metrics.fetched(if result.is_ok() { FetchResult::Good } else { FetchResult::Refused });
        let mut inner = self.lock();
        let Some(entry) = inner.entry(job) else { return };
        let mut more = 0;
        entry.state = match result {
            Ok(content) => {
                more = content.block.len();
                State::Ready(Arc::new(content))
            }
            Err(problem) => {
                let message = &problem.message;
                tracing::warn!(namespace = job.namespace, version = job.version, message, "version not served");
                State::Failed(Arc::new(problem), Instant::now() + jittered(AGAIN))
            }
        };
        entry.landed.send_replace(());
        inner.bytes += more;
        while inner.bytes > self.bound && inner.drop_oldest(job) {}
        self.show(&inner);
    }

    fn show(&self, inner: &Inner) {
        self.metrics.contents(inner.entries.values().map(HashMap::len).sum(), inner.bytes);
    }
}

struct Job {
    namespace: String,
    seals: Seals,
    config_uid: String,
    version: String,
    parts: Vec<PartStatus>,
    number: u64,
}

impl Inner {
    fn entry(&mut self, job: &Job) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(&job.config_uid)?.get_mut(&job.version)?;
        (entry.number == job.number).then_some(entry)
    }

    fn remove(&mut self, config_uid: &str, version: &str) {
        let Some(versions) = self.entries.get_mut(config_uid) else { return };
        if let Some(Entry { state: State::Ready(content), .. }) = versions.remove(version) {
            self.bytes -= content.block.len();
        }
        if versions.is_empty() {
            self.entries.remove(config_uid);
        }
    }

    /// Drops the content that was needed longest ago, but for the one of `job`.
    fn drop_oldest(&mut self, job: &Job) -> bool {
        let ids = self
            .entries
            .iter()
            .flat_map(|(uid, versions)| versions.iter().map(move |(name, entry)| (uid, name, entry)));
        let ready = ids.filter(|(_, _, entry)| matches!(entry.state, State::Ready(_)) && entry.number != job.number);
        let oldest = ready.min_by_key(|(_, _, entry)| entry.used).map(|(uid, name, _)| (uid.clone(), name.clone()));
        oldest.is_some_and(|(uid, name)| {
            self.remove(&uid, &name);
            true
        })
    }
}

/// Reads until there is a content or a problem that does not pass, as long as the result is needed.
async fn fetch(store: Arc<ContentStore>, job: Job) {
    let mut failures = 0;
    while store.wants(&job) {
        match read(&store, &job).await {
            Ok(stored) => return store.land(&job, assemble(&job.version, &job.parts, stored, &job.seals)),
            Err(Fault::Problem(problem)) => return store.land(&job, Err(problem)),
            Err(Fault::Passing(error)) => {
                store.metrics.fetched(FetchResult::Unavailable);
                tracing::debug!(
                    namespace = job.namespace,
                    version = job.version,
                    error = chain(&error),
                    "version not read; retrying"
                );
            }
        }
        failures += 1;
        sleep(jittered(BACKOFF.wait(failures))).await;
    }
}

enum Fault {
    Problem(HubProblem),
    Passing(PartError),
}

async fn read(store: &ContentStore, job: &Job) -> Result<Vec<Part>, Fault> {
    // The semaphore is never closed.
    let _slot = store.slots.acquire().await;
    let reads = job.parts.iter().map(|part| async move {
        let read = timeout(READ, store.source.read(&job.namespace, part.kind, &part.name)).await;
        let late = |_| PartError::Unavailable(Arc::new(std::io::Error::from(std::io::ErrorKind::TimedOut)));
        read.unwrap_or_else(|error| Err(late(error))).map_err(|error| match error {
            PartError::Missing => Fault::Problem(changed(&job.version, part, "is gone")),
            PartError::Forbidden => {
                let text = format!("version {}: Nudge may not read {} {}", job.version, part.kind, part.name);
                let role = match part.kind {
                    nudge_api::PartKind::Secret => "nudge-secrets-hub",
                    nudge_api::PartKind::ConfigMap => "nudge-namespace-hub",
                };
                let way_out = format!("bind the ClusterRole {role} in namespace {}", job.namespace);
                Fault::Problem(problem(HubReason::NotAllowed, format!("{text}; {way_out}")))
            }
            PartError::Unavailable(_) => Fault::Passing(error),
        })
    });
    futures::future::try_join_all(reads).await
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::BoxFuture;
    use nudge_api::{PartKind, VersionState};
    use nudge_core::versions::Contents;

    use super::*;
    use crate::content::tests::{hmac_key, part};

    /// The name of an object that can't be read for now.
    pub(crate) const LATE: &str = "late";

    /// Objects by name; the first `failures` reads fail.
    #[derive(Default)]
    pub(crate) struct Stored {
        pub(crate) objects: Mutex<HashMap<String, (String, Contents)>>,
        pub(crate) failures: AtomicUsize,
        pub(crate) reads: AtomicUsize,
    }

    impl PartSource for Stored {
        fn read<'a>(&'a self, _: &'a str, _: PartKind, name: &'a str) -> BoxFuture<'a, Result<Part, PartError>> {
            Box::pin(async move {
                self.reads.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                if self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
                    || name == LATE
                {
                    return Err(PartError::Unavailable(Arc::new(std::io::Error::other("down"))));
                }
                let objects = self.objects.lock();
                let (uid, contents) = objects.get(name).ok_or(PartError::Missing)?;
                Ok(Part { uid: uid.clone(), contents: contents.clone() })
            })
        }
    }

    impl Stored {
        /// Stores a version of one ConfigMap with one key.
        pub(crate) fn add(&self, version: &str, value: &[u8]) -> VersionStatus {
            let (status, stored) = part(PartKind::ConfigMap, &format!("shop-{version}"), 1, &[("k", value.to_vec())]);
            self.objects.lock().insert(status.name.clone(), (stored.uid, stored.contents));
            sealed(version, vec![status])
        }
    }

    pub(crate) fn sealed(version: &str, parts: Vec<PartStatus>) -> VersionStatus {
        let version = version.to_owned();
        VersionStatus {
            version,
            state: VersionState::Available,
            digest: String::new(),
            parts,
            keys: 1,
            bytes: 1,
            seal_time: None,
            consent: None,
        }
    }

    fn store(source: &Arc<Stored>, settings: &Settings) -> Arc<ContentStore> {
        let source: Arc<dyn PartSource> = source.clone();
        ContentStore::new(source, Arc::new(hmac_key()), settings, Metrics::default())
    }

    async fn get(store: &Arc<ContentStore>, version: &VersionStatus) -> Result<Arc<Content>, Arc<HubProblem>> {
        let key = ConfigKey::parse("ns", "shop").unwrap();
        loop {
            match store.look(&key, "uid", Identity::of_uid("uid"), version) {
                Found::Content(content) => return Ok(content),
                Found::Problem(problem, _) => return Err(problem),
                Found::Fetching(mut landed) => landed.changed().await.unwrap(),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_pods_make_one_fetch_and_failures_that_pass_are_outlived() {
        let source = Arc::new(Stored::default());
        let version = source.add("1", b"x");
        source.failures.store(5, Ordering::SeqCst);
        let store = store(&source, &Settings::default());
        let all = futures::future::join_all((0..100).map(|_| get(&store, &version))).await;
        assert!(all.iter().all(Result::is_ok));
        assert_eq!(source.reads.load(Ordering::SeqCst), 6);
        assert_eq!(store.lock().bytes, all[0].as_ref().ok().unwrap().block.len());
    }

    #[test]
    fn contents_are_fetched_by_the_runtime_of_the_hub_whoever_looks() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (own, other) = (runtime(), runtime());
        let source = Arc::new(Stored::default());
        let version = source.add("1", b"x");
        let store = own.block_on(async { store(&source, &Settings::default()) });
        let key = ConfigKey::parse("ns", "shop").unwrap();
        let mut landed = other.block_on(async {
            let Found::Fetching(landed) = store.look(&key, "uid", Identity::of_uid("uid"), &version) else { panic!() };
            landed
        });
        // It would not get further with the other one.
        drop(other);
        own.block_on(landed.changed()).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_gone_is_reported_and_looked_for_again_later() {
        let source = Arc::new(Stored::default());
        let version = source.add("1", b"x");
        let kept = source.objects.lock().remove("shop-1").unwrap();
        let store = store(&source, &Settings::default());
        let problem = get(&store, &version).await.err().unwrap();
        assert_eq!(problem.reason, HubReason::Changed);
        assert!(problem.message.contains("ConfigMap shop-1 is gone"), "{}", problem.message);
        source.objects.lock().insert("shop-1".to_owned(), kept);
        assert!(get(&store, &version).await.is_err());
        assert_eq!(source.reads.load(Ordering::SeqCst), 1);
        tokio::time::advance(AGAIN * 2).await;
        assert!(get(&store, &version).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_sealed_anew_is_another_content() {
        let source = Arc::new(Stored::default());
        let store = store(&source, &Settings::default());
        let one = get(&store, &source.add("1", b"x")).await.ok().unwrap();
        let two = get(&store, &source.add("1", b"y")).await.ok().unwrap();
        assert_ne!(one.sha256, two.sha256);
        assert_eq!(store.lock().bytes, two.block.len());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_kept_is_bounded_and_what_no_pod_needs_goes() {
        let source = Arc::new(Stored::default());
        let settings = Settings { content_bytes: 10_000, ..Settings::default() };
        let store = store(&source, &settings);
        for n in 0..20 {
            let version = source.add(&n.to_string(), &[0; 3000]);
            get(&store, &version).await.ok().unwrap();
            tokio::time::advance(Duration::from_millis(10)).await;
            assert!(store.lock().bytes <= 10_000);
        }
        let kept = |store: &ContentStore| {
            let mut kept: Vec<String> = store.lock().entries["uid"].keys().cloned().collect();
            kept.sort();
            kept
        };
        assert_eq!(kept(&store), ["17", "18", "19"]);
        store.retain(|_, _| false);
        assert_eq!(kept(&store).len(), 3, "needed a moment ago");
        tokio::time::advance(settings.unused * 2).await;
        store.retain(|uid, version| uid == "uid" && version == "18");
        assert_eq!(kept(&store), ["18"]);
        tokio::time::advance(settings.unused * 2).await;
        store.retain(|_, _| false);
        assert!(store.lock().entries.is_empty());
        assert_eq!(store.lock().bytes, 0);
    }
}
