//! Follows one kind of objects: lists and watches them, and begins again when the watch is lost.
//!
//! A list is read page by page, so that at most one page of whole objects is in memory. Objects are parsed one by one,
//! so that an object that can't be parsed hides no other object. `kube::runtime::watcher` is not used, because it keeps
//! bookmarks to itself. A watch can die silently; this shows in the time since the server last confirmed it by an
//! event, a bookmark, or an orderly end.

mod error;
mod paged_list;
mod source;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use kube::api::{ObjectMeta, WatchEvent, WatchParams};
use kube::{Resource, ResourceExt};
use nudge_protocol::backoff::Backoff;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::WatchHealth;
use super::metrics::WatchMetrics;
use super::start_pace::Pace;
use crate::lenient_object::{Names, parse, parse_fault};
pub use error::FollowError;
use paged_list::list;
pub(super) use source::{KubeSource, Source};

/// The time that a watch may last beyond the requested time.
const MAX_WATCH_OVERRUN: Duration = Duration::from_secs(5);
/// The length of a watch that confirms the known state, in seconds. It brings the changes that were missed, and its end
/// shows that these were all.
const CONFIRMING_WATCH_SECONDS: u32 = 1;
/// The share of its requested time that a watch must last to end normally; an earlier end is a cut.
const MIN_WATCH_SHARE: f64 = 0.9;
/// The waits after failures: short at first, since a restarting server is back in seconds.
const FAILURE_BACKOFF: Backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(30) };
/// The waits after refusals: the credentials, or the kind, may exist soon.
const REFUSED_BACKOFF: Backoff = Backoff { first: Duration::from_secs(2), ..FAILURE_BACKOFF };
/// The waits if a right is missing, which only an administrator can give: Secrets are not for Nudge in most
/// namespaces.
const FORBIDDEN_BACKOFF: Backoff = Backoff { longest: Duration::from_mins(10), ..REFUSED_BACKOFF };

/// A change of the followed objects.
#[derive(Debug)]
pub enum WatchChange<T> {
    /// A list begins. It may break off and begin again.
    Listing,
    /// An object is on the list.
    Found(T),
    /// The list that began at this time is complete: objects that it does not hold are gone.
    Listed(Instant),
    /// An object is new or changed.
    Put(T),
    /// An object is gone; this was its last state.
    Gone(T),
    /// An object is on the list, new, changed or gone, and can't be parsed.
    Unparsed(Unparsed),
}

/// An object that can't be parsed.
#[derive(Debug)]
pub struct Unparsed {
    /// The namespace of the object.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// Whether the object was deleted.
    pub gone: bool,
    /// The reason why it can't be parsed.
    pub reason: String,
}

/// The objects to follow, and how.
pub struct Following<S> {
    /// The source of the objects.
    pub source: S,
    /// The label selector; empty for all objects.
    pub labels: &'static str,
    /// The number of objects in one page of a list.
    pub page_size: u32,
    /// The maximum length of one watch, in seconds, which is the longest silence.
    pub seconds: u32,
    /// The health of the watch, which names the kind.
    pub health: WatchHealth,
    /// The pace of the beginnings of watches.
    pub pace: Arc<Pace>,
    /// The metrics of watches.
    pub metrics: WatchMetrics,
}

/// Follows until dropped. `sink` gets every change in order; `on_failure` gets every interruption, and the number of
/// its kind in a row.
pub async fn follow<S>(
    following: Following<S>,
    mut sink: impl FnMut(WatchChange<S::Item>) + Send,
    mut on_failure: impl FnMut(&FollowError, u32) + Send,
) where
    S: Source,
    S::Item: 'static,
{
    let Following { health, pace, metrics, .. } = &following;
    let mut version: Option<String> = None;
    let mut failures = 0;
    // The backoff of the last failures, and how many in a row had it. An API server that was away for long, and refuses
    // while it starts, is soon asked again.
    let (mut backoff, mut with_backoff) = (FAILURE_BACKOFF, 0);
    let mut continues = false;
    loop {
        if !continues {
            pace.wait_for_turn().await;
        }
        let mut confirmed = false;
        let watch_end = list_and_watch(&following, &mut version, &mut sink, &mut confirmed).await;
        if confirmed {
            // A proxy that cuts streams from time to time must not make the waits longer and longer.
            (failures, with_backoff) = (0, 0);
        }
        continues = matches!(watch_end, Ok(WatchEnd::InGoodOrder));
        match watch_end {
            Ok(WatchEnd::InGoodOrder) => (failures, with_backoff) = (0, 0),
            Ok(WatchEnd::Requested) => {
                if health.needs_relist() {
                    version = None;
                } else {
                    health.doubt();
                }
            }
            Err(error) => {
                health.doubt();
                if error.is_forbidden() {
                    health.set_forbidden(true);
                }
                // Much may happen until a right that was taken is given again.
                if matches!(error, FollowError::Expired { .. } | FollowError::List { .. }) || error.is_forbidden() {
                    version = None;
                }
                failures += 1;
                health.note_failures(failures);
                metrics.failures.inc();
                let last = std::mem::replace(&mut backoff, backoff_after(&error));
                with_backoff = if backoff == last { with_backoff + 1 } else { 1 };
                on_failure(&error, with_backoff);
                tokio::select! {
                    () = tokio::time::sleep(backoff.jittered_wait(with_backoff, rand::random())) => {}
                    () = health.wait_for_request() => {}
                }
            }
        }
    }
}

fn backoff_after(error: &FollowError) -> Backoff {
    match error {
        error if error.is_forbidden() => FORBIDDEN_BACKOFF,
        error if error.is_refusal() => REFUSED_BACKOFF,
        _ => FAILURE_BACKOFF,
    }
}

enum WatchEnd {
    /// The server has kept the watch for the requested time.
    InGoodOrder,
    /// A caller needs the server's current state.
    Requested,
}

/// Lists if that is needed, and watches until the end of the watch.
async fn list_and_watch<S>(
    following: &Following<S>,
    version: &mut Option<String>,
    sink: &mut (impl FnMut(WatchChange<S::Item>) + Send),
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
            // There is no version until the list has succeeded.
            *version = None;
            health.begin_list();
            // Changes during a list are not seen before the list and the watch after it show them.
            health.doubt();
            metrics.lists.inc();
            let began = Instant::now();
            let since = list(following, sink).await?;
            health.set_forbidden(false);
            // Objects that are gone are removed before the list counts as confirmed.
            sink(WatchChange::Listed(began));
            health.note_answer();
            health.confirm(began);
            version.insert(since).clone()
        }
    };
    metrics.watches.inc();
    let _open = metrics.count_open();
    // The request may also have come during the list.
    tokio::select! {
        end = watch(following, version, &since, sink, confirmed) => end.map(|()| WatchEnd::InGoodOrder),
        () = health.wait_for_request() => Ok(WatchEnd::Requested),
    }
}

/// Watches until the end of the watch.
async fn watch<S>(
    following: &Following<S>,
    version: &mut Option<String>,
    since: &str,
    sink: &mut (impl FnMut(WatchChange<S::Item>) + Send),
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
    let watch_duration = if health.is_doubted() { CONFIRMING_WATCH_SECONDS } else { seconds };
    let mut params = WatchParams::default().timeout(watch_duration);
    if !labels.is_empty() {
        params = params.labels(labels);
    }
    let longest = Duration::from_secs(u64::from(seconds)) + MAX_WATCH_OVERRUN;
    let began = tokio::time::Instant::now();
    let begin = tokio::time::timeout(longest, source.changes(&params, since));
    let mut changes = match begin.await {
        Err(_) => return Err(FollowError::Silent { what }),
        Ok(Err(kube::Error::Api(status))) if status.code == 410 => return Err(FollowError::Expired { what }),
        Ok(changes) => changes.map_err(|source| FollowError::Watch { what, source })?,
    };
    let watch_duration = Duration::from_secs(u64::from(watch_duration));
    let longest = watch_duration + MAX_WATCH_OVERRUN;
    loop {
        let next = tokio::time::timeout(longest, changes.try_next()).await;
        let event = match next {
            Err(_) => return Err(FollowError::Silent { what }),
            Ok(Err(source)) => return Err(FollowError::Watch { what, source }),
            Ok(Ok(event)) => event,
        };
        if event.is_none() && began.elapsed() < watch_duration.mul_f64(MIN_WATCH_SHARE) {
            return Err(FollowError::Cut { what, after: began.elapsed(), watch_duration });
        }
        health.note_answer();
        *confirmed |= !matches!(event, Some(WatchEvent::Error(_)));
        match event {
            // The server has kept the watch for the requested time.
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
                *version = read(&object, sink, WatchChange::Put, false).or(version.take());
            }
            Some(WatchEvent::Deleted(object)) => {
                *version = read(&object, sink, WatchChange::Gone, true).or(version.take());
            }
        }
    }
}

/// Parses an object, and passes it on. Returns its version, if it has one that can be read.
fn read<T: DeserializeOwned + Resource>(
    object: &RawValue,
    sink: &mut impl FnMut(WatchChange<T>),
    change: impl FnOnce(T) -> WatchChange<T>,
    gone: bool,
) -> Option<String> {
    match parse::<T>(object) {
        Ok(object) => {
            let version = object.meta().resource_version.clone();
            sink(change(object));
            version
        }
        Err(error) => {
            let Names { namespace, name, resource_version } = Names::of(object);
            sink(WatchChange::Unparsed(Unparsed { namespace, name, gone, reason: parse_fault(&error) }));
            resource_version
        }
    }
}

/// Returns the namespace and the name of an object.
pub(super) fn names(meta: &ObjectMeta) -> (String, String) {
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

/// Returns the value of an object's label.
pub(super) fn label<'a>(object: &'a impl ResourceExt, name: &str) -> Option<&'a str> {
    object.labels().get(name).map(String::as_str)
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
