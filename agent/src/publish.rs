//! The dictionary that is served now, handed from the source to all who serve or tell it.

use std::sync::Arc;

use time::OffsetDateTime;
use tokio::sync::watch;

use crate::content::Dictionary;

/// One dictionary in the row of those that were served.
#[derive(Debug)]
pub struct Published {
    /// Counts up from 1 with every change, in this process only.
    pub generation: u64,
    /// The dictionary.
    pub dictionary: Arc<Dictionary>,
    /// When it began to be served.
    pub at: OffsetDateTime,
}

/// Where the newest dictionary can be read and awaited; `None` until there is a first one. A receiver that is slow sees
/// the newest and may miss those between, which is what telling wants: never a lost last change, never a queue.
pub type Current = watch::Receiver<Option<Arc<Published>>>;

/// The writing end of [`Current`].
pub type Publisher = watch::Sender<Option<Arc<Published>>>;

/// Waits for a dictionary newer than what `current` has shown. The first of all is none: it is what subscribers start with. `false` when
/// there will never be one.
pub async fn newer(current: &mut Current) -> bool {
    if current.borrow().is_none() {
        if current.changed().await.is_err() {
            return false;
        }
        if current.borrow_and_update().as_ref().is_some_and(|published| published.generation > 1) {
            return true;
        }
    }
    current.changed().await.is_ok()
}

/// Waits, the first time, for a dictionary other than the one that a subscriber is `known` to have; where nothing is known of it, as
/// [`newer`] does.
pub async fn other(current: &mut Current, known: Option<&str>) -> bool {
    let Some(known) = known else { return newer(current).await };
    let differs = |now: &Option<Arc<Published>>| now.as_ref().is_some_and(|now| now.dictionary.etag() != known);
    current.wait_for(differs).await.is_ok()
}

/// Puts `dictionary` in the place of the one before and returns it as published.
pub fn publish(publisher: &Publisher, dictionary: Arc<Dictionary>, at: OffsetDateTime) -> Arc<Published> {
    let generation = publisher.borrow().as_ref().map_or(1, |before| before.generation + 1);
    let published = Arc::new(Published { generation, dictionary, at });
    publisher.send_replace(Some(Arc::clone(&published)));
    published
}
