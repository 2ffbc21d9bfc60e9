//! Which dictionary each container has taken last, kept in the state folder. An agent that is killed after storing a version and before
//! notifying of it notifies when it is back, and repeats no notification.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nudge_protocol::ContainerName;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::private_file::write_whole;
use crate::publish::Current;
use crate::status::StatusPage;

/// Its name in the state folder.
const FILE: &str = "notified";

/// `ETag` of the dictionary that each notified container has. `ETag`s stay the same for a pod's life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// By container.
    pub etags: BTreeMap<ContainerName, String>,
}

impl Taken {
    /// Containers without a record start with the `first` dictionary. Returns whether that changes anything.
    fn begin(&mut self, all: &[ContainerName], first: &str) -> bool {
        let before = self.etags.len();
        for name in all {
            self.etags.entry(name.clone()).or_insert_with(|| first.to_owned());
        }
        self.etags.len() > before
    }

    /// Records that these containers have taken the dictionary that is `kept`. Returns whether that changes anything.
    fn take(&mut self, taken: &[ContainerName], kept: &str) -> bool {
        let mut changed = false;
        for name in taken {
            changed |= self.etags.insert(name.clone(), kept.to_owned()).as_deref() != Some(kept);
        }
        changed
    }
}

/// The file of one agent.
#[derive(Clone, Debug)]
pub struct Record {
    path: PathBuf,
}

impl Record {
    /// The file in the state folder.
    pub fn new(state: &Path) -> Self {
        Self { path: state.join(FILE) }
    }

    /// Reads the file. If that fails, containers count as having the dictionary that is served first.
    pub fn load(&self) -> Taken {
        let read = match fs::read(&self.path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Taken::default()),
            Err(error) => Err(error),
        };
        read.unwrap_or_else(|error| {
            tracing::warn!(%error, path = %self.path.display(), "record of notifications not read; containers are not notified of changes that they missed");
            Taken::default()
        })
    }

    /// Keeps the file up to date until the publisher is gone. `kept` is the dictionary that this agent would serve if it restarted now. Only
    /// that one is recorded as taken: a container that has a newer one must be notified of it again after a restart.
    pub async fn keep(
        self,
        mut taken: Taken,
        status: StatusPage,
        mut ready: Current,
        mut kept: watch::Receiver<Option<String>>,
    ) {
        let mut changes = status.changes();
        let all = status.subscribed();
        let Ok(first) = ready.wait_for(Option::is_some).await.map(|first| first.clone()) else { return };
        let mut changed = first.is_some_and(|first| taken.begin(&all, first.dictionary.etag()));
        drop(ready);
        loop {
            if let Some(kept) = kept.borrow_and_update().as_deref() {
                changed |= taken.take(&status.taken(kept), kept);
            }
            if std::mem::take(&mut changed) {
                self.store(&taken);
            }
            tokio::select! {
                Ok(()) = changes.changed() => {}
                Ok(()) = kept.changed() => {}
                else => return,
            }
        }
    }

    fn store(&self, taken: &Taken) {
        let written = serde_json::to_vec(taken)
            .map_err(io::Error::from)
            .and_then(|bytes| write_whole(&self.path, 0o600, |file| file.write_all(&bytes)));
        if let Err(error) = written {
            tracing::warn!(%error, path = %self.path.display(), "record of notifications not stored; a restart of this agent repeats them");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_begins_with_the_first_dictionary_and_changes_with_what_it_takes() {
        let [app, web] = ["app", "web"].map(|name| ContainerName::new(name).unwrap());
        let all = [app.clone(), web.clone()];
        let mut taken = Taken::default();
        assert!(taken.begin(&all, "one") && !taken.begin(&all, "two"));
        let one = std::slice::from_ref(&app);
        assert!(taken.take(one, "two") && !taken.take(one, "two") && !taken.take(&[], "three"));
        assert_eq!((taken.etags[&app].as_str(), taken.etags[&web].as_str()), ("two", "one"));
    }

    #[test]
    fn the_record_is_read_back_and_a_damaged_one_is_empty() {
        let state = tempfile::tempdir().unwrap();
        let record = Record::new(state.path());
        assert_eq!(record.load(), Taken::default());
        let mut taken = Taken::default();
        taken.begin(&[ContainerName::new("app").unwrap()], "one");
        record.store(&taken);
        assert_eq!(record.load(), taken);
        fs::write(state.path().join(FILE), r#"{"etags":{"app":"one"},"later":1}"#).unwrap();
        assert_eq!(record.load(), taken);
        fs::write(state.path().join(FILE), "{").unwrap();
        assert_eq!(record.load(), Taken::default());
    }
}
