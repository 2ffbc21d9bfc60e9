//! From the source to the endpoint, the files and the subscribers, in that order.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nudge_protocol::status::FilesStatus;
use nudge_protocol::{ConfigName, reserved};
use time::OffsetDateTime;
use tokio::time::Instant as Deadline;

use crate::board::Board;
use crate::content::{Dictionary, EtagKey, changed_keys};
use crate::files::project;
use crate::publish::{Published, Publisher, publish};
use crate::serve::{Connections, Metrics};
use crate::source::dir::{Change, DirSource, Scan, Watcher};
use crate::source::{Applied, Reminder, Store};
use crate::tell::{Backoff, Hooks};

/// How long it must be quiet after single files were written before they are read.
const SETTLE: Duration = Duration::from_millis(50);
/// How long after the first write they are read all the same.
const SETTLE_AT_MOST: Duration = Duration::from_secs(1);
/// How long a fault must last before it is told: a link that is replaced in two steps is missing for a moment.
const FAULT_PATIENCE: Duration = Duration::from_millis(100);
/// Waits between attempts to write the files.
const FILES_RETRY: Backoff =
    Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1), give_up: Duration::MAX };

/// Where the dictionary goes.
pub struct Outlets {
    /// What the endpoint serves.
    pub current: Publisher,
    /// What subscribers are told of: set when the endpoint serves it and the files are in place.
    pub ready: Publisher,
    /// The web hooks, which want to know the changed keys.
    pub hooks: Hooks,
    /// The endpoint's connections.
    pub connections: Connections,
    /// What the agent knows of its own work.
    pub board: Board,
    /// Figures.
    pub metrics: Metrics,
    /// The key of `ETag`s.
    pub etags: EtagKey,
    /// The folder for files, where that is asked for.
    pub mount_path: Option<PathBuf>,
}

/// Follows a folder and keeps the outlets up to date.
pub struct Pipeline {
    source: DirSource,
    store: Store,
    outlets: Outlets,
    reread: Duration,
    /// The dictionary that subscribers were last told of.
    told: Option<Arc<Dictionary>>,
    files_due: Option<Deadline>,
    files_failures: u32,
    reminder: Reminder,
    /// What is served and not logged yet.
    unsaid: Option<Arc<Published>>,
}

impl Pipeline {
    /// A pipeline that has read nothing yet; `reread` is the time after which the folder is looked at without being asked.
    pub fn new(source: DirSource, store: Store, outlets: Outlets, reread: Duration) -> Self {
        Self {
            source,
            store,
            outlets,
            reread,
            told: None,
            files_due: None,
            files_failures: 0,
            reminder: Reminder::default(),
            unsaid: None,
        }
    }

    /// Reads the folder for the first time and fills the outlets. Returns what is wrong, if anything.
    pub async fn start(mut self) -> Result<Self, Vec<String>> {
        let scan = self.source.scan();
        for sentence in &scan.ignored {
            tracing::warn!(reason = sentence, "not a config");
        }
        if scan.readings.is_empty() {
            let path = self.source.path().display();
            return Err(vec![format!("{path} holds no config; a config is a folder with a folder for each version")]);
        }
        self.apply(scan);
        let problems = self.store.problems();
        if !problems.is_empty() {
            return Err(problems.values().map(|problem| problem.message.clone()).collect());
        }
        self.deliver().await;
        self.say();
        match self.files_due {
            None => Ok(self),
            // Nothing is running yet, so there is nobody to serve meanwhile: better to say it than to start half.
            Some(_) => Err(vec!["the files could not be written, see above".to_owned()]),
        }
    }

    /// Follows the folder until dropped.
    pub async fn run(mut self) {
        let mut watcher = match Watcher::new(self.source.path().to_owned()) {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                let every = self.reread.as_secs();
                tracing::warn!(%error, every_seconds = every, "can't watch the folder; it is re-read from time to time");
                None
            }
        };
        let mut look = Look::planned(Deadline::now());
        let mut patience = false;
        loop {
            // Not by a timer where it is time already: timers wake up to a millisecond late.
            if look.at() > Deadline::now() {
                tokio::select! {
                    change = changed(&mut watcher) => look.hurry(change, Deadline::now()),
                    () = tokio::time::sleep_until(look.at()) => {}
                    () = tokio::time::sleep_until(self.files_due.unwrap_or(look.planned)), if self.files_due.is_some() => {
                        self.deliver().await;
                    }
                }
                continue;
            }
            let mut scan = self.scan().await;
            look = Look::planned(Deadline::now() + self.reread);
            let folders = std::mem::take(&mut scan.folders);
            let faulty = scan.readings.iter().any(|reading| reading.result.is_err());
            let known = self.store.problems().len();
            if faulty && known == 0 && !patience {
                // Good news from other configs is taken in at once, bad news after a second look.
                patience = true;
                look = Look::planned(Deadline::now() + FAULT_PATIENCE);
                let readings = scan.readings.into_iter().filter(|reading| reading.result.is_ok()).collect();
                self.apply(Scan { readings, ..Scan::default() });
            } else {
                patience = false;
                self.apply(scan);
            }
            self.deliver().await;
            // Subscribers first; what else there is to do comes after them.
            tokio::task::yield_now().await;
            self.say();
            if watcher.as_mut().is_some_and(|watcher| watcher.watch(&folders)) {
                // What happened in a folder before it was watched made no event.
                look.planned = look.planned.min(Deadline::now() + SETTLE);
            }
        }
    }

    /// Looks at the folder without holding up the endpoint.
    async fn scan(&mut self) -> Scan {
        let empty = DirSource::new(self.source.path().to_owned(), None);
        let mut source = std::mem::replace(&mut self.source, empty);
        let looked = tokio::task::spawn_blocking(move || {
            let scan = source.scan();
            (source, scan)
        });
        match looked.await {
            Ok((source, scan)) => {
                self.source = source;
                scan
            }
            Err(error) => {
                // The task has panicked; what it knew is lost and read again next time.
                tracing::error!(%error, "reading the folder failed");
                Scan { folders: BTreeSet::from([PathBuf::new()]), ..Scan::default() }
            }
        }
    }

    /// Takes in what was found and serves it.
    fn apply(&mut self, scan: Scan) {
        let now = OffsetDateTime::now_utc();
        let Applied { dictionary, raised, cleared } = self.store.apply(scan.readings, now);
        self.outlets.board.source_read(self.store.since(), self.store.problems(), Instant::now());
        if self.reminder.is_due(!self.store.problems().is_empty(), Instant::now()) {
            let configs: Vec<&str> = self.store.problems().keys().map(ConfigName::as_str).collect();
            let age_seconds = self.outlets.board.age_seconds(Instant::now());
            tracing::warn!(configs = configs.join(","), age_seconds, "an old version is still served, see /status");
        }
        for (config, problem) in raised {
            tracing::warn!(%config, reason = problem.reason.as_str(), message = problem.message, "the last good version stays");
        }
        for config in cleared {
            tracing::info!(%config, "all is well again");
        }
        let Some(dictionary) = dictionary else { return };
        let first = self.outlets.current.borrow().is_none();
        let published = publish(&self.outlets.current, dictionary, now);
        self.outlets.connections.cut_older(published.generation.saturating_sub(1));
        if !first {
            self.outlets.metrics.switched();
        }
        self.unsaid = Some(published);
    }

    /// Logs what is served since the last call.
    fn say(&mut self) {
        let Some(published) = self.unsaid.take() else { return };
        for overlap in published.dictionary.overlaps() {
            tracing::warn!(key = overlap.key, winner = %overlap.winner, "several configs have this key");
        }
        let versions = published.dictionary.value(reserved::CONFIGS).unwrap_or_default();
        let keys = published.dictionary.entries().len();
        tracing::info!(configs = %String::from_utf8_lossy(&versions), keys, generation = published.generation, "serving");
    }

    /// Writes the files of the served dictionary, where wanted, and then tells the subscribers of it.
    async fn deliver(&mut self) {
        let Some(published) = self.outlets.current.borrow().clone() else { return };
        let is_told = self.told.as_ref().is_some_and(|told| Arc::ptr_eq(told, &published.dictionary));
        if is_told {
            return;
        }
        if let Some(folder) = self.outlets.mount_path.clone() {
            let unique = format!("{}-{}", std::process::id(), published.generation);
            let dictionary = Arc::clone(&published.dictionary);
            let written = write_files(&folder, dictionary, unique).await;
            let etag = if written.is_ok() {
                Some(published.dictionary.etag())
            } else {
                self.told.as_ref().map(|told| told.etag())
            };
            self.outlets.board.files(FilesStatus {
                path: folder.display().to_string(),
                etag: etag.map(str::to_owned),
                message: written.as_ref().err().cloned(),
            });
            if let Err(message) = written {
                self.files_failures += 1;
                if self.files_failures == 1 {
                    tracing::warn!(message, "files not written; subscribers are told when they are");
                }
                let wait = FILES_RETRY.wait(self.files_failures, Duration::ZERO).unwrap_or(FILES_RETRY.longest);
                self.files_due = Some(Deadline::now() + wait);
                return;
            }
            if std::mem::take(&mut self.files_failures) > 0 {
                tracing::info!("files written");
            }
        }
        self.files_due = None;
        if let Some(told) = &self.told
            && !self.outlets.hooks.is_empty()
        {
            self.outlets.hooks.note(&changed_keys(told, &published.dictionary), published.generation);
        }
        self.told = Some(Arc::clone(&published.dictionary));
        self.outlets.ready.send_replace(Some(published));
    }
}

async fn write_files(folder: &Path, dictionary: Arc<Dictionary>, unique: String) -> Result<(), String> {
    let folder = folder.to_owned();
    match tokio::task::spawn_blocking(move || project(&folder, &dictionary, &unique)).await {
        Ok(written) => written.map_err(|error| error.to_string()),
        Err(error) => Err(format!("writing failed: {error}")),
    }
}

/// The next change; never without a watcher.
async fn changed(watcher: &mut Option<Watcher>) -> Change {
    match watcher {
        None => std::future::pending().await,
        Some(watching) => match watching.changed().await {
            Ok(change) => change,
            Err(error) => {
                tracing::warn!(%error, "can't watch the folder any longer; it is re-read from time to time");
                *watcher = None;
                Change::Current
            }
        },
    }
}

/// When the folder is looked at next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    planned: Deadline,
    /// When single files began to be written, and when it will have been quiet for long enough.
    writing: Option<(Deadline, Deadline)>,
}

impl Look {
    fn planned(at: Deadline) -> Self {
        Self { planned: at, writing: None }
    }

    fn at(&self) -> Deadline {
        self.writing.map_or(self.planned, |(_, quiet)| quiet.min(self.planned))
    }

    /// A change has been noticed at `now`. Pure.
    fn hurry(&mut self, change: Change, now: Deadline) {
        match change {
            Change::Current => self.planned = now,
            Change::Content => {
                let first = self.writing.map_or(now, |(first, _)| first);
                self.writing = Some((first, (now + SETTLE).min(first + SETTLE_AT_MOST)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_looked_at_at_once_and_writing_when_it_is_quiet() {
        let start = Deadline::now();
        let idle = Look::planned(start + Duration::from_mins(1));

        let mut look = idle;
        look.hurry(Change::Current, start);
        assert_eq!(look.at(), start);

        let mut look = idle;
        look.hurry(Change::Content, start);
        assert_eq!(look.at(), start + SETTLE);
        let later = start + Duration::from_millis(30);
        look.hurry(Change::Content, later);
        assert_eq!(look.at(), later + SETTLE, "a second write puts it off");
        look.hurry(Change::Current, later);
        assert_eq!(look.at(), later, "a switch does not wait");

        let mut look = idle;
        for millis in (0..1200).step_by(30) {
            look.hurry(Change::Content, start + Duration::from_millis(millis));
        }
        assert_eq!(look.at(), start + SETTLE_AT_MOST, "not for ever");
    }
}
