//! The dictionary that each container has taken last, kept in the state folder. If an agent is killed after it stored a
//! version and before it notified of it, it notifies when it is back. It repeats no notification.

use std::collections::BTreeMap;

use nudge_protocol::ContainerName;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::files::StateFile;
use crate::publish::Current;
use crate::status::StatusPage;

/// The `ETag` of the dictionary that each notified container has. `ETag`s stay the same for a pod's life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotifiedEtags {
    /// The `ETag`s by container.
    pub etags: BTreeMap<ContainerName, String>,
}

impl NotifiedEtags {
    /// Adds containers without a record, which start with the `first` dictionary. Returns whether that changes
    /// anything.
    fn add_missing(&mut self, containers: &[ContainerName], first: &str) -> bool {
        let before = self.etags.len();
        for name in containers {
            self.etags.entry(name.clone()).or_insert_with(|| first.to_owned());
        }
        self.etags.len() > before
    }

    /// Records that these containers have the dictionary with `etag`. Returns whether that changes anything.
    fn set(&mut self, containers: &[ContainerName], etag: &str) -> bool {
        let mut changed = false;
        for name in containers {
            changed |= self.etags.insert(name.clone(), etag.to_owned()).as_deref() != Some(etag);
        }
        changed
    }

    /// Reads the record. If that fails, containers count as having the dictionary that is served first.
    pub fn load(file: &StateFile) -> Self {
        file.load("record of notifications not read; containers are not notified of changes that they missed")
    }
}

/// Keeps the file up to date until the publisher is gone. `kept_etag` belongs to the dictionary that this agent
/// would serve if it restarted now. Only that dictionary is recorded: a container with a newer one must be notified
/// again after a restart.
pub async fn keep_etags(
    mut notified: NotifiedEtags,
    file: StateFile,
    status: StatusPage,
    mut ready: Current,
    mut kept_etag: watch::Receiver<Option<String>>,
) {
    let mut changes = status.changes();
    let subscribers = status.subscribers();
    let Ok(first) = ready.wait_for(Option::is_some).await.map(|first| first.clone()) else { return };
    let mut changed = first.is_some_and(|first| notified.add_missing(&subscribers, first.dictionary.etag()));
    drop(ready);
    loop {
        if let Some(etag) = kept_etag.borrow_and_update().as_deref() {
            changed |= notified.set(&status.containers_with(etag), etag);
        }
        if std::mem::take(&mut changed) {
            file.store_or_warn(&notified, "record of notifications not stored; a restart of this agent repeats them");
        }
        tokio::select! {
            Ok(()) = changes.changed() => {}
            Ok(()) = kept_etag.changed() => {}
            else => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_container_begins_with_the_first_dictionary_and_changes_with_what_it_takes() {
        let [app, web] = ["app", "web"].map(|name| ContainerName::new(name).unwrap());
        let containers = [app.clone(), web.clone()];
        let mut notified = NotifiedEtags::default();
        assert!(notified.add_missing(&containers, "one") && !notified.add_missing(&containers, "two"));
        let one = std::slice::from_ref(&app);
        assert!(notified.set(one, "two") && !notified.set(one, "two") && !notified.set(&[], "three"));
        assert_eq!((notified.etags[&app].as_str(), notified.etags[&web].as_str()), ("two", "one"));
    }

    #[test]
    fn a_record_with_a_field_of_a_later_agent_is_read() {
        let state = tempfile::tempdir().unwrap();
        fs::write(state.path().join("notified"), r#"{"etags":{"app":"one"},"later":1}"#).unwrap();
        let notified = NotifiedEtags::load(&StateFile::new(state.path(), "notified"));
        assert_eq!(notified.etags[&ContainerName::new("app").unwrap()], "one");
    }
}
