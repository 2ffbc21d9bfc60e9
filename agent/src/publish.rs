//! The dictionary that is served now, handed from the pipeline to the endpoint and the notifications.

use std::sync::Arc;

use time::OffsetDateTime;
use tokio::sync::watch;

use crate::content::Dictionary;

/// A dictionary that is or was served.
#[derive(Debug)]
pub struct Published {
    /// The number of the dictionary in this process, from 1.
    pub generation: u64,
    /// The dictionary that readers get.
    pub dictionary: Arc<Dictionary>,
    /// The time when the dictionary began to be served.
    pub at: OffsetDateTime,
}

/// The newest dictionary; `None` until the first dictionary. A slow receiver may miss dictionaries in between, but
/// never the newest, so notifications need no queue.
pub type Current = watch::Receiver<Option<Arc<Published>>>;

/// The writing end of [`Current`].
pub type Publisher = watch::Sender<Option<Arc<Published>>>;

/// Waits for a dictionary newer than the last dictionary of `current`. The very first dictionary does not count, since
/// subscribers start with it. Returns `false` if no newer dictionary will ever come.
async fn wait_for_newer(current: &mut Current) -> bool {
    if current.borrow().is_none() {
        let is_newer = |newest: &Option<Arc<Published>>| newest.as_ref().is_some_and(|newest| newest.generation > 1);
        return current.wait_for(is_newer).await.is_ok();
    }
    current.changed().await.is_ok()
}

/// Waits for a dictionary other than the subscriber's, which has `known_etag`; without an `ETag`, for a newer
/// dictionary. Returns `false` if no such dictionary will ever come.
pub async fn wait_for_other(current: &mut Current, known_etag: Option<&str>) -> bool {
    let Some(known_etag) = known_etag else { return wait_for_newer(current).await };
    let differs = |now: &Option<Arc<Published>>| now.as_ref().is_some_and(|now| now.dictionary.etag() != known_etag);
    current.wait_for(differs).await.is_ok()
}

/// Replaces the published dictionary and returns the new dictionary.
pub fn publish(publisher: &Publisher, dictionary: Arc<Dictionary>, time: OffsetDateTime) -> Arc<Published> {
    let generation = publisher.borrow().as_ref().map_or(1, |before| before.generation + 1);
    let published = Arc::new(Published { generation, dictionary, at: time });
    publisher.send_replace(Some(Arc::clone(&published)));
    published
}
