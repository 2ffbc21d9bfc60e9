//! A watch of one object by its name. It needs no right to any other object.

use std::fmt::Debug;
use std::future::ready;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use kube::runtime::utils::StreamBackoff;
use kube::runtime::watcher::{Config, DefaultBackoff, Error, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

/// Follows the object of this name: returns each of its states, or `None` when it does not exist. One watch lasts for
/// `seconds`; by then a dead watch is noticed.
pub(crate) fn follow<K>(api: Api<K>, name: &str, seconds: u32) -> BoxStream<'static, Option<K>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let events = watcher(api, Config::default().fields(&format!("metadata.name={name}")).timeout(seconds));
    object_states(back_off(events), name.to_owned()).boxed()
}

/// Delays the events for longer after each failure in a row. Drops the event that a list begins, because it also
/// precedes the failure of a list.
pub(crate) fn back_off<K: Send + 'static>(
    events: impl Stream<Item = Result<Event<K>, Error>> + Send + 'static,
) -> BoxStream<'static, Result<Event<K>, Error>> {
    let events = events.try_filter(|event| ready(!matches!(event, Event::Init)));
    StreamBackoff::new(events, DefaultBackoff::default()).boxed()
}

fn object_states<K: Send + 'static>(
    events: impl Stream<Item = Result<Event<K>, Error>> + Send + 'static,
    name: String,
) -> impl Stream<Item = Option<K>> + Send {
    let mut listed = None;
    events.filter_map(move |event| {
        let state = match event {
            Ok(Event::Init) => None,
            Ok(Event::InitApply(object)) => {
                listed = Some(object);
                None
            }
            Ok(Event::InitDone) => Some(listed.take()),
            Ok(Event::Apply(object)) => Some(Some(object)),
            Ok(Event::Delete(_)) => Some(None),
            Err(error) => {
                listed = None;
                // The error may quote text that could not be parsed, such as that of a Secret.
                tracing::debug!(object = name, code = status_code(&error), "watch interrupted; retrying");
                None
            }
        };
        ready(state)
    })
}

/// Returns the HTTP status of the answer; `None` if no answer came.
pub(crate) fn status_code(error: &Error) -> Option<u16> {
    match error {
        Error::InitialListFailed(kube::Error::Api(status))
        | Error::WatchStartFailed(kube::Error::Api(status))
        | Error::WatchFailed(kube::Error::Api(status))
        | Error::WatchError(status) => Some(status.code),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use kube::core::Status;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lists_that_fail_are_ever_rarer() {
        let began = tokio::time::Instant::now();
        let events = (0..6).flat_map(|_| [Ok(Event::<i32>::Init), Err(Error::NoResourceVersion)]);
        let errors: Vec<_> = back_off(futures::stream::iter(events.collect::<Vec<_>>())).collect().await;
        assert_eq!(errors.len(), 6);
        // The waits are 0.8 s, and about twice as long each time. Without growth, the sum is 10 s at most.
        assert!(began.elapsed() > std::time::Duration::from_secs(15), "{:?}", began.elapsed());
    }

    #[test]
    fn a_list_without_the_object_says_that_it_is_gone() {
        let forbidden = kube::Error::Api(Box::new(Status { code: 403, ..Status::default() }));
        let events = vec![
            Ok(Event::Init),
            Ok(Event::InitDone),
            Ok(Event::Apply(1)),
            Err(Error::NoResourceVersion),
            Err(Error::WatchStartFailed(forbidden)),
            Ok(Event::Init),
            Ok(Event::InitApply(2)),
            Ok(Event::InitDone),
            Ok(Event::Delete(2)),
        ];
        let states: Vec<Option<i32>> =
            object_states(futures::stream::iter(events), "live".to_owned()).collect().now_or_never().unwrap();
        assert_eq!(states, [None, Some(1), Some(2), None]);
    }
}
