//! Events on configs and pods, which `kubectl describe` shows. They never hold a value.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::Resource;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use nudge_api::{Explanation, VersionedConfig};
use nudge_core::event_record::EventRecord;
use nudge_core::keys::PodKey;
use nudge_protocol::bounded_text::clip;
use nudge_protocol::error_chain::chain;
use tokio::sync::mpsc;

use crate::call::call;

/// The maximum size of a message, which is the API's bound of `note`.
const MAX_NOTE_BYTES: usize = 1024;

/// The maximum number of Events on configs that wait to be written. Further ones are left out.
const MAX_QUEUE_LENGTH: usize = 1024;
/// The maximum number of Events that are written at once.
const MAX_CONCURRENT_WRITES: usize = 8;

/// A writer of Events.
#[derive(Clone)]
pub struct EventRecorder {
    writer: Writer,
    queue: Arc<OnceLock<mpsc::Sender<(ObjectReference, EventRecord)>>>,
}

#[derive(Clone)]
struct Writer(Recorder);

impl EventRecorder {
    /// Returns a writer of Events from this replica.
    pub fn new(client: Client, instance: &str) -> Self {
        let reporter = Reporter { controller: "nudge".into(), instance: Some(instance.to_owned()) };
        Self { writer: Writer(Recorder::new(client, reporter)), queue: Arc::default() }
    }

    /// Queues Events on a config, without waiting for their writes.
    pub fn record(&self, config: &VersionedConfig, events: &[EventRecord]) {
        if events.is_empty() {
            return;
        }
        let queue = self.queue.get_or_init(|| {
            let (sender, receiver) = mpsc::channel(MAX_QUEUE_LENGTH);
            let writer = self.writer.clone();
            let events = stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
            tokio::spawn(events.for_each_concurrent(MAX_CONCURRENT_WRITES, move |(reference, event)| {
                let writer = writer.clone();
                async move { _ = writer.write(&reference, event).await }
            }));
            sender
        });
        for event in events {
            if queue.try_send((config.object_ref(&()), event.clone())).is_err() {
                tracing::debug!(object = config.metadata.name, reason = %event.explanation.reason, "Event left out: too many wait");
            }
        }
    }

    /// Writes an Event on a pod. Returns whether it was written.
    pub async fn record_on_pod(&self, pod: &PodKey, uid: &str, event: EventRecord) -> bool {
        let reference = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(pod.namespace.clone()),
            name: Some(pod.name.clone()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        };
        self.writer.write(&reference, event).await
    }
}

impl Writer {
    /// Writes an Event. Returns whether it was written.
    async fn write(&self, reference: &ObjectReference, record: EventRecord) -> bool {
        let Explanation { reason, message } = record.explanation;
        let message = clip(message, MAX_NOTE_BYTES);
        let event = Event {
            type_: if record.warning { EventType::Warning } else { EventType::Normal },
            reason: reason.to_string(),
            action: action(reason.as_str(), &message),
            note: Some(message),
            secondary: None,
        };
        let result = call(|| "writing an Event".to_owned(), self.0.publish(&event, reference)).await;
        if let Err(error) = &result {
            let object = reference.name.as_deref();
            tracing::debug!(error = chain(error), object, %reason, "Event not written");
        }
        result.is_ok()
    }
}

/// Returns an action that differs for each message, so that each is an Event of its own. The recorder would otherwise
/// increment the last Event of the same reason and object, with its old message.
fn action(reason: &str, message: &str) -> String {
    let mut hasher = DefaultHasher::new();
    message.hash(&mut hasher);
    format!("{reason}-{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_message_is_another_event() {
        assert_eq!(action("Current", "version 2 is current"), action("Current", "version 2 is current"));
        assert_ne!(action("Current", "version 2 is current"), action("Current", "version 3 is current"));
        assert!(action("Current", &"m".repeat(2000)).len() <= 128, "the API takes no more");
    }
}
