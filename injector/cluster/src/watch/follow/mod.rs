//! Follows one kind of objects: lists them, watches them, and begins anew when the watch is lost.
//!
//! A list goes page by page, so that no more than a page of whole objects is in memory, and object by object, so that one that can't be
//! parsed hides no other. Not `kube::runtime::watcher`, because that keeps bookmarks to itself. A watch can die silently; this shows in the
//! time since the server last confirmed it, by an event, a bookmark, or an end in good order.

mod error;
mod paged_list;
mod source;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use kube::ResourceExt;
use kube::api::{ObjectMeta, WatchEvent, WatchParams};
use nudge_protocol::backoff::Backoff;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::WatchHealth;
use super::metrics::WatchMetrics;
use super::pace::Pace;
use crate::lenient::{Names, parse, reason};
pub use error::FollowError;
use paged_list::list;
pub(super) use source::{HasMeta, Metadata, Source, Whole};

/// How much longer than it was asked to a watch may last.
const WATCH_OVERRUN: Duration = Duration::from_secs(5);
/// How long a watch lasts that is to confirm what is known, in seconds: it brings what was missed, and its end says that this was all.
const CONFIRMING_WATCH_SECONDS: u32 = 1;
/// The share of the requested time after which the end of a watch is normal; an earlier end is a cut.
const MIN_WATCH_SHARE: f64 = 0.9;
/// Waits after failures: short at first, since a restarting server is back in seconds.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(30) };
/// Waits after refusals: the credentials, or the kind, may be there soon.
const REFUSED_BACKOFF: Backoff = Backoff { first: Duration::from_secs(2), ..BACKOFF };
/// Waits where a right is missing, which only an administrator can give: Secrets are not for Nudge in most namespaces.
const FORBIDDEN_BACKOFF: Backoff = Backoff { longest: Duration::from_mins(10), ..REFUSED_BACKOFF };

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
    /// One is on the list, new, changed or gone, and can't be parsed.
    Unparsed(Unparsed),
}

/// An object that can't be parsed.
#[derive(Debug)]
pub struct Unparsed {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The object was deleted.
    pub gone: bool,
    /// Why it can't be parsed.
    pub reason: String,
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

/// Follows until dropped. `sink` gets every change in order; `failed` gets every interruption and how many of its kind there were in a row.
pub async fn follow<S>(
    following: Following<S>,
    mut sink: impl FnMut(Change<S::Item>) + Send,
    mut failed: impl FnMut(&FollowError, u32) + Send,
) where
    S: Source,
    S::Item: 'static,
{
    let Following { health, pace, metrics, .. } = &following;
    let mut version: Option<String> = None;
    let mut failures = 0;
    // The last failure waits like this, and so many in a row did: an API server that was away for long, and refuses while it starts, is asked
    // again soon.
    let mut alike = (BACKOFF, 0);
    let mut goes_on = false;
    loop {
        if !goes_on {
            pace.turn().await;
        }
        let mut confirmed = false;
        let ended = round(&following, &mut version, &mut sink, &mut confirmed).await;
        if confirmed {
            // Something that cuts streams from time to time must not make the waits longer and longer.
            (failures, alike.1) = (0, 0);
        }
        goes_on = matches!(ended, Ok(WatchEnd::InGoodOrder));
        match ended {
            Ok(WatchEnd::InGoodOrder) => (failures, alike.1) = (0, 0),
            Ok(WatchEnd::Asked) => {
                if health.needs_relist() {
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
                health.record_failures(failures);
                metrics.failures.inc();
                let backoff = match () {
                    () if error.is_forbidden() => FORBIDDEN_BACKOFF,
                    () if error.is_refusal() => REFUSED_BACKOFF,
                    () => BACKOFF,
                };
                alike = (backoff, if backoff == alike.0 { alike.1 + 1 } else { 1 });
                failed(&error, alike.1);
                tokio::select! {
                    () = tokio::time::sleep(backoff.jittered_wait(alike.1, rand::random())) => {}
                    () = health.wait_for_ask() => {}
                }
            }
        }
    }
}

/// How a watch has ended.
enum WatchEnd {
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
) -> Result<WatchEnd, FollowError>
where
    S: Source,
    S::Item: 'static,
{
    let Following { health, metrics, .. } = following;
    let since = match &*version {
        Some(since) if !health.needs_relist() => since.clone(),
        _ => {
            // Until it has succeeded.
            *version = None;
            health.list_started();
            // Nothing that changes meanwhile is seen before the list and the watch after it show it.
            health.doubt();
            metrics.lists.inc();
            let began = Instant::now();
            let since = list(following, sink).await?;
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
        ended = watch(following, version, &since, sink, confirmed) => ended.map(|()| WatchEnd::InGoodOrder),
        () = health.wait_for_ask() => Ok(WatchEnd::Asked),
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
    S::Item: 'static,
{
    let Following { source, labels, seconds, health, .. } = following;
    let what = health.what;
    // Watches that have begun together must not all end together.
    let seconds = seconds - rand::random_range(0..=seconds / 5);
    let lasts = if health.is_doubted() { CONFIRMING_WATCH_SECONDS } else { seconds };
    let mut params = WatchParams::default().timeout(lasts);
    if !labels.is_empty() {
        params = params.labels(labels);
    }
    let longest = Duration::from_secs(u64::from(seconds)) + WATCH_OVERRUN;
    let began = tokio::time::Instant::now();
    let begin = tokio::time::timeout(longest, source.changes(&params, since));
    let mut changes = match begin.await {
        Err(_) => return Err(FollowError::Silent { what }),
        Ok(Err(kube::Error::Api(status))) if status.code == 410 => return Err(FollowError::Expired { what }),
        Ok(changes) => changes.map_err(|source| FollowError::Watch { what, source })?,
    };
    let lasts = Duration::from_secs(u64::from(lasts));
    let longest = lasts + WATCH_OVERRUN;
    loop {
        let next = tokio::time::timeout(longest, changes.try_next()).await;
        let event = match next {
            Err(_) => return Err(FollowError::Silent { what }),
            Ok(Err(source)) => return Err(FollowError::Watch { what, source }),
            Ok(Ok(event)) => event,
        };
        if event.is_none() && began.elapsed() < lasts.mul_f64(MIN_WATCH_SHARE) {
            return Err(FollowError::Cut { what, after: began.elapsed(), lasts });
        }
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
                *version = read(&object, sink, Change::Put, false).or(version.take());
            }
            Some(WatchEvent::Deleted(object)) => *version = read(&object, sink, Change::Gone, true).or(version.take()),
        }
    }
}

/// Parses an object and hands it on. Returns its version, if it has one that can be read.
fn read<T: DeserializeOwned + HasMeta>(
    object: &RawValue,
    sink: &mut impl FnMut(Change<T>),
    change: impl FnOnce(T) -> Change<T>,
    gone: bool,
) -> Option<String> {
    match parse::<T>(object) {
        Ok(object) => {
            let version = object.object_meta().resource_version.clone();
            sink(change(object));
            version
        }
        Err(error) => {
            let Names { namespace, name, resource_version } = Names::of(object);
            sink(Change::Unparsed(Unparsed { namespace, name, gone, reason: reason(&error) }));
            resource_version
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
#[path = "follow_tests.rs"]
mod tests;
