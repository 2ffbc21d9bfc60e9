//! The delivery that all sources share: good content goes to the endpoint, then to the files, then to the subscribers.

use std::sync::Arc;
use std::time::Instant;

use nudge_protocol::status::FilesStatus;
use nudge_protocol::{ConfigName, reserved};
use time::OffsetDateTime;

use super::next_attempt::Retry;
use crate::check::Checks;
use crate::content::{Dictionary, EtagKey, changed_keys, changed_object_keys};
use crate::files::volume_files::{FileFolders, Rooms};
use crate::metrics::Metrics;
use crate::notify::Webhooks;
use crate::publish::{Published, Publisher, publish};
use crate::serve::Connections;
use crate::source::{Applied, FaultReminder, Store};
use crate::status::StatusPage;

/// The maximum size of a replaced dictionary that stays in memory for slow readers.
const MAX_RETAINED_BYTES: usize = 1024 * 1024;

/// The parts that dictionaries are delivered to.
#[derive(Clone)]
pub struct Outlets {
    /// The dictionary that the endpoint serves.
    pub current: Publisher,
    /// The dictionary that subscribers are notified of: set when the endpoint serves it and the files are in place.
    pub ready: Publisher,
    /// The webhooks, whose events list the changed keys.
    pub hooks: Webhooks,
    /// The endpoint's connections.
    pub connections: Connections,
    /// The status of the agent's own work.
    pub status: StatusPage,
    /// The agent's metrics.
    pub metrics: Metrics,
    /// The key of `ETag`s.
    pub etags: EtagKey,
    /// The containers that are asked before another version is served.
    pub checks: Checks,
    /// The folders that files are kept in.
    pub folders: FileFolders,
}

/// The reason why the files are not written, and the next attempt.
struct FilesFault {
    retry: Retry,
    error: String,
}

/// The delivery of dictionaries to the outlets.
pub struct Delivery {
    outlets: Outlets,
    /// The dictionary that subscribers were last notified of.
    notified: Option<Arc<Dictionary>>,
    files_fault: Option<FilesFault>,
    reminder: FaultReminder,
    /// The dictionary that is served and not logged yet.
    unlogged: Option<Arc<Published>>,
}

impl Delivery {
    /// Creates a delivery that has delivered nothing yet.
    pub fn new(outlets: Outlets) -> Self {
        Self { outlets, notified: None, files_fault: None, reminder: FaultReminder::default(), unlogged: None }
    }

    /// Returns the outlets that get each dictionary.
    pub fn outlets(&self) -> &Outlets {
        &self.outlets
    }

    /// Returns the reason why the files could not be written; the attempt is repeated.
    pub fn files_error(&self) -> Option<&str> {
        Some(&self.files_fault.as_ref()?.error)
    }

    /// Looks for the room for another version's files; `None` if no files are kept.
    pub fn rooms(&self) -> Option<Rooms> {
        (!self.outlets.folders.is_empty()).then(|| self.outlets.folders.rooms())
    }

    /// Returns whether the files of this dictionary exist already, from an agent before.
    pub fn has_files(&self, dictionary: &Dictionary) -> bool {
        self.outlets.folders.have(dictionary)
    }

    /// Waits until it is time to write the files again; for ever if they are in place.
    pub async fn wait_until_files_due(&self) {
        match &self.files_fault {
            Some(fault) => fault.retry.wait_until_due().await,
            None => std::future::pending().await,
        }
    }

    /// Serves the contents that `store` has accepted. `confirmed` is the time of a read of the source without fault.
    pub fn serve(&mut self, store: &Store, applied: Applied, confirmed: Option<Instant>) {
        let Applied { dictionary, raised, cleared } = applied;
        self.outlets.status.set_source(store.since(), store.problems(), confirmed);
        if self.reminder.is_due(!store.problems().is_empty(), Instant::now()) {
            let configs: Vec<&str> = store.problems().keys().map(ConfigName::as_str).collect();
            let age_seconds = self.outlets.status.age_seconds(Instant::now());
            tracing::warn!(configs = configs.join(","), age_seconds, "configs still have problems; see /status");
        }
        for (config, problem) in raised {
            let reason = problem.reason.as_str();
            tracing::warn!(%config, reason, error = problem.message, "config has a problem; the last good version stays");
        }
        for config in cleared {
            tracing::info!(%config, "config has no problem any more");
        }
        let Some(dictionary) = dictionary else { return };
        let is_first = self.outlets.current.borrow().is_none();
        let is_large = dictionary.json().len() > MAX_RETAINED_BYTES;
        let published = publish(&self.outlets.current, dictionary, OffsetDateTime::now_utc());
        // A slow reader may finish the version before, but not one that takes much memory.
        self.outlets.connections.cut_older(published.generation.saturating_sub(u64::from(!is_large)));
        if !is_first {
            self.outlets.metrics.count_switch();
        }
        self.unlogged = Some(published);
    }

    /// Logs the dictionary that is served since the last call.
    pub fn log(&mut self) {
        let Some(published) = self.unlogged.take() else { return };
        for overlap in published.dictionary.overlaps() {
            tracing::warn!(key = overlap.key, winner = %overlap.winner, "several configs have the same key");
        }
        let versions = published.dictionary.value(reserved::CONFIGS).unwrap_or_default();
        let keys = published.dictionary.entries().len();
        tracing::info!(configs = %String::from_utf8_lossy(&versions), keys, generation = published.generation, "serving");
    }

    /// Writes the files of the served dictionary, if there are folders for them, and then notifies the subscribers of
    /// it.
    pub async fn deliver(&mut self) {
        let Some(published) = self.outlets.current.borrow().clone() else { return };
        let is_notified = self.notified.as_ref().is_some_and(|notified| Arc::ptr_eq(notified, &published.dictionary));
        if is_notified {
            return;
        }
        if !self.outlets.folders.is_empty() {
            let folders = self.outlets.folders.clone();
            let paths = folders.paths();
            let result = write_files(folders, Arc::clone(&published.dictionary)).await;
            let etag = if result.is_ok() {
                Some(published.dictionary.etag())
            } else {
                self.notified.as_ref().map(|notified| notified.etag())
            };
            let files = FilesStatus {
                path: paths.clone(),
                etag: etag.map(str::to_owned),
                message: result.as_ref().err().cloned(),
            };
            let before = self.notified.as_ref().map_or(&[][..], |notified| notified.configs());
            let changed = published.dictionary.configs().iter().filter(|view| !before.contains(view));
            self.outlets.status.set_files(files, changed.map(|view| view.name.clone()).collect());
            if let Err(error) = result {
                let mut retry = self.files_fault.take().map(|fault| fault.retry).unwrap_or_default();
                if retry.plan() == 1 {
                    tracing::warn!(
                        folder = paths,
                        error,
                        "files not written; retrying, and subscribers are notified after that"
                    );
                }
                self.files_fault = Some(FilesFault { retry, error });
                return;
            }
            if self.files_fault.take().is_some() {
                tracing::info!(folder = paths, "files written");
            }
        }
        if let Some(notified) = &self.notified {
            let Outlets { status, hooks, .. } = &self.outlets;
            let etag = published.dictionary.etag();
            let has_use = !hooks.is_empty() || status.selects_keys();
            let changed = if has_use { changed_keys(notified, &published.dictionary) } else { Vec::new() };
            let of_objects =
                if status.selects_keys() { changed_object_keys(notified, &published.dictionary) } else { Vec::new() };
            let read = [&changed[..], &of_objects].concat();
            status.begin_notifying(notified.etag(), etag, &read, &hooks.containers());
            hooks.record_changes(&changed, published.generation, etag);
        }
        self.notified = Some(Arc::clone(&published.dictionary));
        self.outlets.ready.send_replace(Some(published));
    }
}

async fn write_files(folders: FileFolders, dictionary: Arc<Dictionary>) -> Result<(), String> {
    let leftovers = match tokio::task::spawn_blocking(move || folders.write(&dictionary)).await {
        Ok(written) => written.map_err(|error| error.to_string())?,
        Err(error) => return Err(format!("the task that writes them failed: {error}")),
    };
    for error in leftovers {
        tracing::warn!(error, "old files not removed");
    }
    Ok(())
}
