//! What all sources share: good content goes to the endpoint, then to the files, then to the subscribers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nudge_protocol::backoff::Backoff;
use nudge_protocol::status::FilesStatus;
use nudge_protocol::{ConfigName, reserved};
use time::OffsetDateTime;
use tokio::time::Instant as Deadline;

use crate::check::Checks;
use crate::content::{Dictionary, EtagKey, changed_keys};
use crate::disk_room::Room;
use crate::files::{is_in_place, project, room};
use crate::metrics::Metrics;
use crate::notify::Webhooks;
use crate::publish::{Published, Publisher, publish};
use crate::serve::Connections;
use crate::source::{Applied, Reminder, Store};
use crate::status::StatusPage;

/// A larger dictionary does not stay in memory for slow readers once there is a newer one.
const LARGE_BYTES: usize = 1024 * 1024;
/// Waits between attempts to write the files.
const FILES_RETRY: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1) };

/// Where the dictionary goes.
#[derive(Clone)]
pub struct Outlets {
    /// What the endpoint serves.
    pub current: Publisher,
    /// What subscribers are notified of: set when the endpoint serves it and the files are in place.
    pub ready: Publisher,
    /// The webhooks, whose events list the changed keys.
    pub hooks: Webhooks,
    /// The endpoint's connections.
    pub connections: Connections,
    /// What the agent knows of its own work.
    pub status: StatusPage,
    /// Metrics.
    pub metrics: Metrics,
    /// The key of `ETag`s.
    pub etags: EtagKey,
    /// The containers that are asked before anything else is served.
    pub checks: Checks,
    /// The folder for files, where the setting is given.
    pub mount_path: Option<PathBuf>,
}

/// The next attempt to write the files.
struct FilesRetry {
    failures: u32,
    due: Deadline,
    error: String,
}

/// The delivery of dictionaries to the outlets.
pub struct Delivery {
    outlets: Outlets,
    /// The dictionary that subscribers were last notified of.
    notified: Option<Arc<Dictionary>>,
    /// Set while the files can't be written.
    files_retry: Option<FilesRetry>,
    reminder: Reminder,
    /// What is served and not logged yet.
    unlogged: Option<Arc<Published>>,
}

impl Delivery {
    /// Nothing is delivered yet.
    pub fn new(outlets: Outlets) -> Self {
        Self { outlets, notified: None, files_retry: None, reminder: Reminder::default(), unlogged: None }
    }

    /// The outlets.
    pub fn outlets(&self) -> &Outlets {
        &self.outlets
    }

    /// Why the files could not be written; they are tried again.
    pub fn lacks_files(&self) -> Option<&str> {
        Some(&self.files_retry.as_ref()?.error)
    }

    /// The room for another version's files, where there is a folder for them.
    pub fn room(&self) -> Option<Room> {
        room(self.outlets.mount_path.as_ref()?)
    }

    /// Returns whether the files of this dictionary are there already, from an agent before.
    pub fn has_files(&self, dictionary: &Dictionary) -> bool {
        self.outlets.mount_path.as_ref().is_some_and(|folder| is_in_place(folder, dictionary))
    }

    /// Waits until it is time to write the files again; for ever where they are in place.
    pub async fn files_due(&self) {
        match &self.files_retry {
            Some(retry) => tokio::time::sleep_until(retry.due).await,
            None => std::future::pending().await,
        }
    }

    /// Serves what `store` has taken in. `confirmed` says that the source was read without fault.
    pub fn serve(&mut self, store: &Store, applied: Applied, confirmed: bool) {
        let Applied { dictionary, raised, cleared } = applied;
        self.outlets.status.source_read(store.since(), store.problems(), confirmed.then(Instant::now));
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
        let first = self.outlets.current.borrow().is_none();
        let large = dictionary.json().len() > LARGE_BYTES;
        let published = publish(&self.outlets.current, dictionary, OffsetDateTime::now_utc());
        // A slow reader may finish the version before, but not one that takes much memory.
        self.outlets.connections.cut_older(published.generation.saturating_sub(u64::from(!large)));
        if !first {
            self.outlets.metrics.switched();
        }
        self.unlogged = Some(published);
    }

    /// Logs what is served since the last call.
    pub fn log(&mut self) {
        let Some(published) = self.unlogged.take() else { return };
        for overlap in published.dictionary.overlaps() {
            tracing::warn!(key = overlap.key, winner = %overlap.winner, "several configs have the same key");
        }
        let versions = published.dictionary.value(reserved::CONFIGS).unwrap_or_default();
        let keys = published.dictionary.entries().len();
        tracing::info!(configs = %String::from_utf8_lossy(&versions), keys, generation = published.generation, "serving");
    }

    /// Writes the files of the served dictionary, where there is a folder for them, and then notifies the subscribers of it.
    pub async fn deliver(&mut self) {
        let Some(published) = self.outlets.current.borrow().clone() else { return };
        let is_notified = self.notified.as_ref().is_some_and(|notified| Arc::ptr_eq(notified, &published.dictionary));
        if is_notified {
            return;
        }
        if let Some(folder) = self.outlets.mount_path.clone() {
            let dictionary = Arc::clone(&published.dictionary);
            let written = write_files(&folder, dictionary).await;
            let etag = if written.is_ok() {
                Some(published.dictionary.etag())
            } else {
                self.notified.as_ref().map(|notified| notified.etag())
            };
            let files = FilesStatus {
                path: folder.display().to_string(),
                etag: etag.map(str::to_owned),
                message: written.as_ref().err().cloned(),
            };
            let before = self.notified.as_ref().map_or(&[][..], |notified| notified.configs());
            let changed = published.dictionary.configs().iter().filter(|view| !before.contains(view));
            self.outlets.status.files(files, changed.map(|view| view.name.clone()).collect());
            if let Err(error) = written {
                let failures = self.files_retry.as_ref().map_or(0, |retry| retry.failures).saturating_add(1);
                if failures == 1 {
                    let folder = folder.display();
                    tracing::warn!(%folder, error, "files not written; retrying, and subscribers are notified after that");
                }
                let due = Deadline::now() + FILES_RETRY.wait(failures);
                self.files_retry = Some(FilesRetry { failures, due, error });
                return;
            }
            if self.files_retry.take().is_some() {
                tracing::info!(folder = %folder.display(), "files written");
            }
        }
        if let Some(notified) = &self.notified {
            let Outlets { status, hooks, .. } = &self.outlets;
            let etag = published.dictionary.etag();
            if !hooks.is_empty() {
                hooks.changed(&changed_keys(notified, &published.dictionary), published.generation, etag);
            }
            status.begin_notifying(etag, &hooks.containers());
        }
        self.notified = Some(Arc::clone(&published.dictionary));
        self.outlets.ready.send_replace(Some(published));
    }
}

async fn write_files(folder: &Path, dictionary: Arc<Dictionary>) -> Result<(), String> {
    let path = folder.to_owned();
    let leftovers = match tokio::task::spawn_blocking(move || project(&path, &dictionary)).await {
        Ok(written) => written.map_err(|error| error.to_string())?,
        Err(error) => return Err(format!("the task that writes them failed: {error}")),
    };
    for error in leftovers {
        tracing::warn!(folder = %folder.display(), error, "old files not removed");
    }
    Ok(())
}
