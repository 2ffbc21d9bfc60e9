//! A watch of one object by its name, which needs no right to any other.

use std::fmt::Debug;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Error, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

/// What becomes of the object.
#[derive(Debug)]
pub(crate) enum Seen<K> {
    /// It is there, so.
    There(K),
    /// It is not there.
    Gone,
    /// It may not be read.
    Forbidden,
}

/// Follows the object of this name. `seconds`: how long one watch lasts, so how soon a dead one is noticed.
pub(crate) fn follow<K>(api: Api<K>, name: &str, seconds: u32) -> BoxStream<'static, Seen<K>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let events = watcher(api, Config::default().fields(&format!("metadata.name={name}")).timeout(seconds));
    each(events.default_backoff(), name.to_owned()).boxed()
}

fn each<K: Send + 'static>(
    events: impl Stream<Item = Result<Event<K>, Error>> + Send + 'static,
    name: String,
) -> impl Stream<Item = Seen<K>> + Send {
    let mut listed = None;
    events.filter_map(move |event| {
        let seen = match event {
            Ok(Event::Init) => {
                listed = None;
                None
            }
            Ok(Event::InitApply(object)) => {
                listed = Some(object);
                None
            }
            Ok(Event::InitDone) => Some(listed.take().map_or(Seen::Gone, Seen::There)),
            Ok(Event::Apply(object)) => Some(Seen::There(object)),
            Ok(Event::Delete(_)) => Some(Seen::Gone),
            Err(error) => {
                // Its text may hold what could not be parsed, which may be a Secret.
                let code = code(&error);
                tracing::debug!(object = name, code, "watch interrupted; retrying");
                (code == 403).then_some(Seen::Forbidden)
            }
        };
        std::future::ready(seen)
    })
}

/// The HTTP status of the answer, or 0 where there was none.
pub(crate) fn code(error: &Error) -> u16 {
    match error {
        Error::InitialListFailed(kube::Error::Api(status))
        | Error::WatchStartFailed(kube::Error::Api(status))
        | Error::WatchFailed(kube::Error::Api(status))
        | Error::WatchError(status) => status.code,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use kube::core::Status;

    use super::*;

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
        let seen: Vec<Seen<i32>> =
            each(futures::stream::iter(events), "live".to_owned()).collect().now_or_never().unwrap();
        let said: Vec<String> = seen.iter().map(|seen| format!("{seen:?}")).collect();
        assert_eq!(said, ["Gone", "There(1)", "Forbidden", "There(2)", "Gone"]);
    }
}
