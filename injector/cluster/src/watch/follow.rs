//! Follows one kind of objects: lists them, watches them, and begins anew when the watch is lost.
//!
//! A list goes page by page, so that no more than a page of whole objects is in memory. Not `kube::runtime::watcher`, because that keeps
//! bookmarks to itself. A watch can die silently; this shows in the time since the
//! server last confirmed it, by an event, a bookmark, or an end in good order.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use kube::api::{Api, ListParams, ObjectList, ObjectMeta, WatchEvent, WatchParams};
use kube::core::PartialObjectMeta;
use kube::{Resource, ResourceExt};
use nudge_protocol::backoff::Backoff;
use serde::de::DeserializeOwned;

use super::WatchHealth;
use super::metrics::WatchMetrics;
use super::pace::Pace;

/// How much longer than it was asked to a watch may last.
const GRACE: Duration = Duration::from_secs(5);
/// Longest time for a whole list.
const LIST: Duration = Duration::from_mins(1);
/// How long a watch lasts that is to confirm what is known, in seconds: it brings what was missed, and its end says that this was all.
const CONFIRMING: u32 = 1;
/// Waits after failures: short at first, since a restarting server is back in seconds.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(30) };
/// Waits after refusals, which only an administrator can change.
const REFUSED: Backoff = Backoff { first: Duration::from_secs(2), ..BACKOFF };

/// What has happened to the followed objects.
#[derive(Debug)]
pub enum Change<T> {
    /// A list begins. It may break off, and begin anew.
    Listing,
    /// This is on the list.
    Found(T),
    /// The list that began then is complete: what it does not hold is gone.
    Listed(Instant),
    /// One is new or changed.
    Put(T),
    /// One is gone; this was its last state.
    Gone(T),
}

/// Why following was interrupted.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The list failed.
    #[error("{what} can't be listed")]
    List {
        /// The kind.
        what: &'static str,
        /// The cause.
        #[source]
        source: kube::Error,
    },
    /// The watch failed.
    #[error("{what} can't be watched")]
    Watch {
        /// The kind.
        what: &'static str,
        /// The cause.
        #[source]
        source: kube::Error,
    },
    /// The server has forgotten the changes since the last one known (compaction): all are listed again.
    #[error("the API server has forgotten older changes of {what}")]
    Expired {
        /// The kind.
        what: &'static str,
    },
    /// Nothing came for longer than the server promised to stay silent.
    #[error("the watch of {what} is dead: neither an event nor a bookmark nor its end came in time")]
    Silent {
        /// The kind.
        what: &'static str,
    },
}

impl FollowError {
    /// Nudge has no right to it.
    pub fn is_forbidden(&self) -> bool {
        match self {
            Self::List { source: kube::Error::Api(status), .. }
            | Self::Watch { source: kube::Error::Api(status), .. } => status.code == 403,
            _ => false,
        }
    }

    /// Nudge's role does not allow it, or the kind is not there.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::List { source: kube::Error::Api(status), .. }
            | Self::Watch { source: kube::Error::Api(status), .. } => {
                matches!(status.code, 401 | 403 | 404)
            }
            _ => false,
        }
    }
}

/// How objects are read: whole, or their metadata only.
pub trait Source: Send + Sync {
    /// What comes out.
    type Item: Send + HasMeta;
    /// One page.
    fn page(&self, params: &ListParams) -> impl Future<Output = kube::Result<ObjectList<Self::Item>>> + Send
    where
        Self::Item: Clone;
    /// The changes since a version.
    fn changes(
        &self,
        params: &WatchParams,
        version: &str,
    ) -> impl Future<Output = kube::Result<BoxStream<'static, kube::Result<WatchEvent<Self::Item>>>>> + Send;
}

/// Anything with metadata.
pub trait HasMeta {
    /// The metadata.
    fn object_meta(&self) -> &ObjectMeta;
}

impl<T: Resource> HasMeta for T {
    fn object_meta(&self) -> &ObjectMeta {
        self.meta()
    }
}

/// Whole objects.
pub(super) struct Whole<K>(pub(super) Api<K>);
/// Metadata only.
pub(super) struct Metadata<K>(pub(super) Api<K>);

impl<K> Source for Whole<K>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
{
    type Item = K;
    async fn page(&self, params: &ListParams) -> kube::Result<ObjectList<K>> {
        self.0.list(params).await
    }
    async fn changes(
        &self,
        params: &WatchParams,
        version: &str,
    ) -> kube::Result<BoxStream<'static, kube::Result<WatchEvent<K>>>> {
        Ok(self.0.watch(params, version).await?.boxed())
    }
}

impl<K> Source for Metadata<K>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
{
    type Item = PartialObjectMeta<K>;
    async fn page(&self, params: &ListParams) -> kube::Result<ObjectList<Self::Item>> {
        self.0.list_metadata(params).await
    }
    async fn changes(
        &self,
        params: &WatchParams,
        version: &str,
    ) -> kube::Result<BoxStream<'static, kube::Result<WatchEvent<Self::Item>>>> {
        Ok(self.0.watch_metadata(params, version).await?.boxed())
    }
}

/// What to follow.
pub struct Following<S> {
    /// How objects are read.
    pub source: S,
    /// Which: a label selector, or empty.
    pub labels: &'static str,
    /// Objects in one page of a list.
    pub page: u32,
    /// How long the server keeps one watch at most, in seconds: the longest silence.
    pub seconds: u32,
    /// The health of the watch, which names the kind.
    pub health: WatchHealth,
    /// When watches begin.
    pub pace: Arc<Pace>,
    /// Counts them.
    pub metrics: WatchMetrics,
}

/// Follows until dropped. `sink` gets every change in order; `failed` gets every interruption and how many there were since the
/// last success.
pub async fn follow<S>(
    following: Following<S>,
    mut sink: impl FnMut(Change<S::Item>) + Send,
    mut failed: impl FnMut(&FollowError, u32) + Send,
) where
    S: Source,
    S::Item: Clone + DeserializeOwned + 'static,
{
    let Following { health, pace, metrics, .. } = &following;
    let mut version: Option<String> = None;
    let mut failures = 0;
    let mut goes_on = false;
    loop {
        if !goes_on {
            pace.turn().await;
        }
        let mut confirmed = false;
        let ended = round(&following, &mut version, &mut sink, &mut confirmed).await;
        if confirmed {
            // Something that cuts streams from time to time must not make the waits longer and longer.
            failures = 0;
        }
        goes_on = matches!(ended, Ok(Ended::InGoodOrder));
        match ended {
            Ok(Ended::InGoodOrder) => failures = 0,
            Ok(Ended::Asked) => {
                if health.lists_again() {
                    version = None;
                } else {
                    health.doubt();
                }
            }
            Err(error) => {
                health.doubt();
                if error.is_forbidden() {
                    health.forbid();
                }
                // Much may have happened until a right that was taken is given again.
                if matches!(error, FollowError::Expired { .. } | FollowError::List { .. }) || error.is_forbidden() {
                    version = None;
                }
                failures += 1;
                metrics.failures.inc();
                failed(&error, failures);
                let backoff = if error.is_refusal() { REFUSED } else { BACKOFF };
                tokio::select! {
                    () = tokio::time::sleep(backoff.jittered(failures, rand::random())) => {}
                    () = health.asked() => {}
                }
            }
        }
    }
}

/// How a watch has ended.
enum Ended {
    /// The server has kept it as long as it was asked to.
    InGoodOrder,
    /// Somebody has asked for what the server knows now.
    Asked,
}

/// One list, where needed, and one watch to its end.
async fn round<S>(
    following: &Following<S>,
    version: &mut Option<String>,
    sink: &mut (impl FnMut(Change<S::Item>) + Send),
    confirmed: &mut bool,
) -> Result<Ended, FollowError>
where
    S: Source,
    S::Item: Clone + DeserializeOwned + 'static,
{
    let Following { health, pace, metrics, .. } = following;
    let what = health.what;
    let since = match &*version {
        Some(since) if !health.lists_again() => since.clone(),
        _ => {
            let turn = pace.list().await;
            // Until it has succeeded.
            *version = None;
            health.lists();
            metrics.lists.inc();
            let began = Instant::now();
            let listed = tokio::time::timeout(LIST, list(following, sink)).await;
            let listed = listed.map_err(|_| FollowError::Silent { what })?;
            let since = listed.map_err(|source| FollowError::List { what, source })?;
            drop(turn);
            health.allow();
            // What is not there any more goes before this is confirmed.
            sink(Change::Listed(began));
            health.beat();
            health.confirm(began);
            version.insert(since).clone()
        }
    };
    metrics.watches.inc();
    let _open = metrics.opened();
    // Also while a list was made somebody may have asked.
    tokio::select! {
        ended = watch(following, version, &since, sink, confirmed) => ended.map(|()| Ended::InGoodOrder),
        () = health.asked() => Ok(Ended::Asked),
    }
}

/// One watch to its end.
async fn watch<S>(
    following: &Following<S>,
    version: &mut Option<String>,
    since: &str,
    sink: &mut (impl FnMut(Change<S::Item>) + Send),
    confirmed: &mut bool,
) -> Result<(), FollowError>
where
    S: Source,
    S::Item: Clone + DeserializeOwned + 'static,
{
    let Following { source, labels, seconds, health, .. } = following;
    let what = health.what;
    // Watches that have begun together must not all end together.
    let seconds = seconds - rand::random_range(0..=seconds / 5);
    let lasts = if health.is_doubted() { CONFIRMING } else { seconds };
    let mut params = WatchParams::default().timeout(lasts);
    if !labels.is_empty() {
        params = params.labels(labels);
    }
    let longest = Duration::from_secs(u64::from(seconds)) + GRACE;
    let begin = tokio::time::timeout(longest, source.changes(&params, since));
    let mut changes = match begin.await {
        Err(_) => return Err(FollowError::Silent { what }),
        Ok(Err(kube::Error::Api(status))) if status.code == 410 => return Err(FollowError::Expired { what }),
        Ok(changes) => changes.map_err(|source| FollowError::Watch { what, source })?,
    };
    let longest = Duration::from_secs(u64::from(lasts)) + GRACE;
    loop {
        let next = tokio::time::timeout(longest, changes.try_next()).await;
        let event = match next {
            Err(_) => return Err(FollowError::Silent { what }),
            Ok(Err(source)) => return Err(FollowError::Watch { what, source }),
            Ok(Ok(event)) => event,
        };
        health.beat();
        *confirmed |= !matches!(event, Some(WatchEvent::Error(_)));
        match event {
            // The server has kept the watch as long as it was asked to.
            None => {
                health.confirm(Instant::now());
                return Ok(());
            }
            // Changes come in order.
            Some(WatchEvent::Bookmark(bookmark)) => {
                health.confirm(Instant::now());
                *version = Some(bookmark.metadata.resource_version);
            }
            Some(WatchEvent::Error(status)) if status.code == 410 => return Err(FollowError::Expired { what }),
            Some(WatchEvent::Error(status)) => {
                return Err(FollowError::Watch { what, source: kube::Error::Api(status) });
            }
            Some(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                version.clone_from(&object.object_meta().resource_version);
                sink(Change::Put(object));
            }
            Some(WatchEvent::Deleted(object)) => {
                version.clone_from(&object.object_meta().resource_version);
                sink(Change::Gone(object));
            }
        }
    }
}

/// One list. Returns its version.
async fn list<S>(following: &Following<S>, sink: &mut (impl FnMut(Change<S::Item>) + Send)) -> kube::Result<String>
where
    S: Source,
    S::Item: Clone,
{
    let mut params = ListParams::default().limit(following.page);
    if !following.labels.is_empty() {
        params = params.labels(following.labels);
    }
    sink(Change::Listing);
    loop {
        let page = following.source.page(&params).await?;
        page.items.into_iter().for_each(|item| sink(Change::Found(item)));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(page.metadata.resource_version.unwrap_or_default()),
        }
    }
}

/// Name and namespace of any object.
pub(super) fn names(meta: &ObjectMeta) -> (String, String) {
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

/// Labels of any object.
pub(super) fn label<'a>(object: &'a impl ResourceExt, name: &str) -> Option<&'a str> {
    object.labels().get(name).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use k8s_openapi::api::core::v1::ConfigMap;
    use tokio::sync::mpsc;

    use super::*;

    /// No objects, and watches that are as the test says. Records how long each was asked to last.
    struct Scripted {
        watches: Mutex<VecDeque<kube::Result<Changes>>>,
        asked: mpsc::UnboundedSender<Option<u32>>,
    }

    type Item = PartialObjectMeta<ConfigMap>;
    type Changes = BoxStream<'static, kube::Result<WatchEvent<Item>>>;

    impl Source for Scripted {
        type Item = Item;
        async fn page(&self, _: &ListParams) -> kube::Result<ObjectList<Item>> {
            Ok(serde_json::from_value(serde_json::json!({"metadata": {"resourceVersion": "1"}, "items": []})).unwrap())
        }
        async fn changes(&self, params: &WatchParams, version: &str) -> kube::Result<Changes> {
            assert_eq!(version, "1");
            self.asked.send(params.timeout).unwrap();
            self.watches.lock().unwrap().pop_front().unwrap_or_else(|| Ok(futures::stream::pending().boxed()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_have_been_missed_is_confirmed_by_a_short_watch() {
        let (asked, mut lasts) = mpsc::unbounded_channel();
        let ends = || Ok(futures::stream::empty().boxed());
        let breaks = || Ok(futures::stream::iter([Err(kube::Error::LinesCodecMaxLineLengthExceeded)]).boxed());
        let holds = || Ok(futures::stream::pending().boxed());
        let watches = Mutex::new(VecDeque::from([breaks(), ends(), holds(), ends()]));
        let health = WatchHealth::new("tests");
        let source = Scripted { watches, asked };
        let (pace, metrics) = (Arc::default(), WatchMetrics::default());
        let following = Following { source, labels: "", page: 100, seconds: 30, health: health.clone(), pace, metrics };
        let following = tokio::spawn(follow(following, |_| {}, |_, _| {}));
        let mut asked = async || lasts.recv().await.flatten().unwrap();
        for confirming in [false, true, false] {
            let seconds = asked().await;
            assert!(if confirming { seconds == 1 } else { (24..=30).contains(&seconds) }, "{seconds}");
        }
        assert!(!health.is_doubted());
        let now = Instant::now();
        assert!(!health.is_confirmed(now));
        health.ask();
        assert_eq!(asked().await, 1, "the watch that was held is ended");
        assert!(asked().await >= 24);
        assert!(health.is_confirmed(now));
        following.abort();
    }

    /// Lists of three pages. The second page of the first list can't be read.
    struct Paged {
        asked: Mutex<Vec<String>>,
    }

    impl Source for Paged {
        type Item = Item;
        async fn page(&self, params: &ListParams) -> kube::Result<ObjectList<Item>> {
            let page = params.continue_token.clone().unwrap_or_else(|| "1".to_owned());
            let count = {
                let mut asked = self.asked.lock().unwrap();
                asked.push(page.clone());
                asked.len()
            };
            if count == 2 {
                return Err(kube::Error::LinesCodecMaxLineLengthExceeded);
            }
            let next = ["1", "2", "3"].iter().skip_while(|number| **number != page).nth(1).copied().unwrap_or_default();
            let items: Vec<_> =
                ["a", "b"].map(|name| serde_json::json!({"metadata": {"name": format!("{name}{page}")}})).into();
            let list = serde_json::json!({"metadata": {"resourceVersion": page, "continue": next}, "items": items});
            Ok(serde_json::from_value(list).unwrap())
        }
        async fn changes(&self, _: &WatchParams, _: &str) -> kube::Result<Changes> {
            Ok(futures::stream::pending().boxed())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_is_taken_page_by_page_and_anew_after_a_failure_or_when_asked_to() {
        let health = WatchHealth::new("tests");
        let source = Paged { asked: Mutex::default() };
        let (pace, metrics) = (Arc::default(), WatchMetrics::default());
        let following = Following { source, labels: "", page: 2, seconds: 30, health: health.clone(), pace, metrics };
        let (seen, mut changes) = mpsc::unbounded_channel();
        let sink = move |change: Change<Item>| {
            let text = match change {
                Change::Listing => "[".to_owned(),
                Change::Found(object) => object.name_any(),
                Change::Listed(_) => "]".to_owned(),
                Change::Put(_) | Change::Gone(_) => "?".to_owned(),
            };
            seen.send(text).unwrap();
        };
        let following = tokio::spawn(follow(following, sink, |_, _| {}));
        let mut next = async |count: usize| {
            let mut all = Vec::new();
            for _ in 0..count {
                all.push(changes.recv().await.unwrap());
            }
            all.join(" ")
        };
        assert_eq!(next(11).await, "[ a1 b1 [ a1 b1 a2 b2 a3 b3 ]");
        let listed = Instant::now();
        health.list_again();
        assert_eq!(next(8).await, "[ a1 b1 a2 b2 a3 b3 ]");
        tokio::task::yield_now().await;
        assert!(health.is_confirmed(listed) && !health.is_doubted(), "nothing was missed");
        following.abort();
    }
}
