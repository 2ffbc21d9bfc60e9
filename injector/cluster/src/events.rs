//! Events on configs and pods, for people who look with `kubectl describe`. Never a value.

use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::Resource;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use nudge_api::VersionedConfig;
use nudge_core::versions::Note;
use nudge_protocol::bounded_text::clip;
use nudge_protocol::error_chain::chain;

use crate::call::call;

/// Longest note, in bytes (API limit of `note`).
const MAX_BYTES: usize = 1024;

/// Writes Events.
#[derive(Clone)]
pub struct Notes(Recorder);

impl Notes {
    /// Events from this replica.
    pub fn new(client: Client, instance: &str) -> Self {
        Self(Recorder::new(client, Reporter { controller: "nudge".into(), instance: Some(instance.to_owned()) }))
    }

    /// Tells `notes` of a config.
    pub async fn tell(&self, config: &VersionedConfig, notes: &[Note]) {
        self.tell_of(&config.object_ref(&()), notes).await;
    }

    /// Tells of a pod. Returns whether the Event was written.
    pub async fn tell_of_pod(&self, namespace: &str, name: &str, uid: &str, note: Note) -> bool {
        let reference = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        };
        self.tell_of(&reference, &[note]).await
    }

    /// Tells `notes` of any object. An Event that can't be written is no fault of the object. Returns whether all were.
    async fn tell_of(&self, reference: &ObjectReference, notes: &[Note]) -> bool {
        let mut all = true;
        for note in notes {
            let mut message = note.message.clone();
            clip(&mut message, MAX_BYTES);
            let event = Event {
                type_: if note.warning { EventType::Warning } else { EventType::Normal },
                reason: note.reason.to_owned(),
                action: action(note.reason, &message),
                note: Some(message),
                secondary: None,
            };
            let told = call(|| "writing an Event".to_owned(), self.0.publish(&event, reference)).await;
            if let Err(error) = told {
                tracing::debug!(cause = chain(&error), reason = note.reason, "no Event");
                all = false;
            }
        }
        all
    }
}

/// What makes one Event the same as another, beside its reason and its object. The recorder would add to the count of the last one of
/// the same reason, whose message would stay. Pure.
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
