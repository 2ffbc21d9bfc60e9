//! The stream of a window of the browser: first everything, then the changes, at most a few times a second.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, stream};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{sleep, timeout};

use super::feed::{Feed, Key};
use super::reply::to_json;
use super::row::ConfigRow;

/// The minimum time between two lines. A window that reads slowly gets fewer.
const MIN_LINE_INTERVAL: Duration = Duration::from_millis(200);
/// The maximum time between two lines. They show the page that it is up to date.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);

/// The content of a window.
pub(crate) trait PageView: Send + 'static {
    /// Returns the changes since the last call.
    fn next(&mut self, feed: &Feed) -> Option<Value>;
}

/// Returns the lines for a window. The permit counts the window as open.
pub(crate) fn lines(view: impl PageView, feed: Feed, permit: OwnedSemaphorePermit) -> impl Stream<Item = Bytes> + Send {
    struct StreamState<V> {
        view: V,
        feed: Feed,
        changes: watch::Receiver<u64>,
        is_first: bool,
        _permit: OwnedSemaphorePermit,
    }
    let changes = feed.changes();
    stream::unfold(StreamState { view, feed, changes, is_first: true, _permit: permit }, async |mut state| {
        if !std::mem::take(&mut state.is_first) {
            sleep(MIN_LINE_INTERVAL).await;
        }
        loop {
            state.changes.mark_unchanged();
            if let Some(value) = state.view.next(&state.feed) {
                return Some((line(value), state));
            }
            match timeout(HEARTBEAT_INTERVAL, state.changes.changed()).await {
                Ok(Ok(())) => {}
                // The page ends.
                Ok(Err(_)) => return None,
                Err(_) => return Some((line(json!({})), state)),
            }
        }
    })
}

/// Returns the document in a line, with the time of this machine.
fn line(mut value: Value) -> Bytes {
    value["now"] = json!(Timestamp::now().as_millisecond());
    Bytes::from(format!("{value}\n"))
}

/// The last version of a document that is sent when it changes.
#[derive(Debug, Default)]
pub(crate) struct Last(Value);

impl Last {
    /// Adds the document under this name if it has changed.
    pub(crate) fn put(&mut self, line: &mut Value, name: &str, document: &impl Serialize) {
        let document = to_json(document);
        if document != self.0 {
            self.0 = document;
            line[name] = self.0.clone();
        }
    }
}

/// The view of all configs.
#[derive(Debug, Default)]
pub(crate) struct Overview {
    /// The rows that the window shows; absent before the first line.
    sent_rows: Option<BTreeMap<Key, ConfigRow>>,
    fault: Last,
}

impl PageView for Overview {
    fn next(&mut self, feed: &Feed) -> Option<Value> {
        let state = feed.state();
        let mut line = json!({});
        self.fault.put(&mut line, "fault", &state.fault());
        if let Some(configs) = state.configs() {
            let rows: BTreeMap<Key, ConfigRow> =
                configs.iter().map(|(key, config)| (key.clone(), ConfigRow::new(config))).collect();
            let empty = BTreeMap::new();
            let sent = self.sent_rows.as_ref().unwrap_or(&empty);
            let changed: Vec<&ConfigRow> =
                rows.iter().filter(|(key, row)| sent.get(key) != Some(row)).map(|(_, row)| row).collect();
            let gone: Vec<&Key> = sent.keys().filter(|key| !rows.contains_key(key)).collect();
            if self.sent_rows.is_none() || !changed.is_empty() || !gone.is_empty() {
                line["rows"] = to_json(&changed);
                line["gone"] = json!(gone);
                self.sent_rows = Some(rows);
            }
        }
        (line != json!({})).then_some(line)
    }
}
