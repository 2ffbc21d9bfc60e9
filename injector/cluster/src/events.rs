//! Events on configs, their objects, workloads and pods, which `kubectl describe` shows. They never hold a value.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

use futures::{StreamExt as _, stream};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client, Resource};
use nudge_api::{Explanation, PartKind, VersionedConfig};
use nudge_core::event_record::EventRecord;
use nudge_core::keys::{ConfigKey, PodKey};
use nudge_core::owners::WorkloadKind;
use nudge_protocol::bounded_text::clip;
use nudge_protocol::error_chain::chain;
use tokio::sync::mpsc;

use crate::call::call;
use crate::part_objects::part_resource;

/// The maximum size of a message, which is the API's bound of `note`.
const MAX_NOTE_BYTES: usize = 1024;

/// The maximum number of Events that wait to be written, but those on pods. Further ones are left out.
const MAX_QUEUE_LENGTH: usize = 1024;
/// The maximum number of Events that are written at once.
const MAX_CONCURRENT_WRITES: usize = 8;

/// A writer of Events.
#[derive(Clone)]
pub struct EventRecorder {
    writer: Writer,
    queue: Arc<OnceLock<mpsc::Sender<(EventSubject, EventRecord)>>>,
}

/// The object that an Event is on.
#[derive(Clone, Debug)]
enum EventSubject {
    /// An object whose uid is known.
    Known(ObjectReference),
    /// An object whose uid is read when the Event is written, since `kubectl describe` finds Events by it.
    Named { resource: ApiResource, namespace: String, name: String },
}

impl EventSubject {
    fn name(&self) -> Option<&str> {
        match self {
            Self::Known(reference) => reference.name.as_deref(),
            Self::Named { name, .. } => Some(name),
        }
    }
}

#[derive(Clone)]
struct Writer {
    recorder: Recorder,
    client: Client,
}

impl EventRecorder {
    /// Returns a writer of Events from this replica.
    pub fn new(client: Client, instance: &str) -> Self {
        let reporter = Reporter { controller: "nudge".into(), instance: Some(instance.to_owned()) };
        let recorder = Recorder::new(client.clone(), reporter);
        Self { writer: Writer { recorder, client }, queue: Arc::default() }
    }

    /// Queues Events on a config, without waiting for their writes.
    pub fn record(&self, config: &VersionedConfig, events: &[EventRecord]) {
        self.queue(&EventSubject::Known(config.object_ref(&())), events);
    }

    /// Queues Events on the object of the config's name, if it exists.
    pub fn record_on_object(&self, kind: PartKind, config: &ConfigKey, events: &[EventRecord]) {
        let (resource, namespace, name) = (part_resource(kind), config.namespace.clone(), config.name.to_string());
        self.queue(&EventSubject::Named { resource, namespace, name }, events);
    }

    /// Queues Events on a workload, if it exists.
    pub fn record_on_workload(&self, kind: WorkloadKind, namespace: &str, name: &str, events: &[EventRecord]) {
        let resource = match kind {
            WorkloadKind::Deployment => ApiResource::erase::<Deployment>(&()),
            WorkloadKind::StatefulSet => ApiResource::erase::<StatefulSet>(&()),
            WorkloadKind::DaemonSet => ApiResource::erase::<DaemonSet>(&()),
        };
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        self.queue(&EventSubject::Named { resource, namespace, name }, events);
    }

    fn queue(&self, subject: &EventSubject, events: &[EventRecord]) {
        if events.is_empty() {
            return;
        }
        let queue = self.queue.get_or_init(|| {
            let (sender, receiver) = mpsc::channel(MAX_QUEUE_LENGTH);
            let writer = self.writer.clone();
            let events = stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
            tokio::spawn(events.for_each_concurrent(MAX_CONCURRENT_WRITES, move |(subject, event)| {
                let writer = writer.clone();
                async move {
                    if let Some(reference) = writer.resolve(subject).await {
                        writer.write(&reference, event).await;
                    }
                }
            }));
            sender
        });
        for event in events {
            if queue.try_send((subject.clone(), event.clone())).is_err() {
                tracing::debug!(object = subject.name(), reason = %event.explanation.reason, "Event left out: too many wait");
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
    /// Returns the reference of an object; `None` if it does not exist or can't be read.
    async fn resolve(&self, subject: EventSubject) -> Option<ObjectReference> {
        let (resource, namespace, name) = match subject {
            EventSubject::Known(reference) => return Some(reference),
            EventSubject::Named { resource, namespace, name } => (resource, namespace, name),
        };
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), &namespace, &resource);
        let reading = || format!("reading {} {namespace}/{name}", resource.kind);
        // Nudge may list workloads, and not get them.
        let params = ListParams::default().fields(&format!("metadata.name={name}"));
        match call(reading, api.list_metadata(&params)).await {
            Ok(list) => Some(ObjectReference {
                uid: list.items.into_iter().next()?.metadata.uid,
                api_version: Some(resource.api_version),
                kind: Some(resource.kind),
                namespace: Some(namespace),
                name: Some(name),
                ..ObjectReference::default()
            }),
            Err(error) => {
                tracing::debug!(error = chain(&error), object = name, "Event not written");
                None
            }
        }
    }

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
        let result = call(|| "writing an Event".to_owned(), self.recorder.publish(&event, reference)).await;
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
