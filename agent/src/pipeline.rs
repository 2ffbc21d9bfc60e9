//! From the source to the endpoint, the files and the subscribers, in that order.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
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
use crate::source::dir::{Change, DirSource, SETTLE, Scan, Watcher};
use crate::source::{Applied, Reminder, Store};
use crate::tell::{Backoff, Hooks};

/// How long after the first write they are read all the same.
const SETTLE_AT_MOST: Duration = Duration::from_secs(1);
/// When a folder is looked at again that was faulty or being written.
const SOON: Duration = Duration::from_millis(100);
/// When a folder that stays faulty is looked at again: what is missing may come back where nothing can be watched.
const FAULTY: Duration = Duration::from_secs(1);
/// A look that takes no longer may hold up the endpoint.
const QUICK: Duration = Duration::from_millis(2);
/// A dictionary of more bytes than this does not stay in memory for slow readers once there is a newer one.
const LARGE_BYTES: usize = 1024 * 1024;
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

/// Reads the folder and keeps what was last good. Works without the runtime, on a thread that may wait for a disk.
struct Reader {
    source: DirSource,
    store: Store,
    patient: bool,
    /// The last look took no longer than a few requests, on a disk of this machine.
    quick: bool,
}

/// What one look has brought.
struct Looked {
    applied: Applied,
    folders: BTreeSet<PathBuf>,
    /// It should be looked at again soon.
    again: bool,
}

impl Reader {
    fn look(&mut self, now: OffsetDateTime) -> Looked {
        let began = Instant::now();
        let Scan { mut readings, folders, unsettled, local, .. } = self.source.scan();
        self.quick = local && began.elapsed() < QUICK;
        let faulty = readings.iter().any(|reading| reading.result.is_err());
        // Good news is taken in at once, the first bad news after a second look: what is replaced in two steps is missing
        // for a moment.
        self.patient = faulty && !self.patient && self.store.problems().is_empty();
        if self.patient {
            readings.retain(|reading| reading.result.is_ok());
        }
        Looked { applied: self.store.apply(readings, now), folders, again: self.patient || unsettled }
    }
}

/// Follows a folder and keeps the outlets up to date.
pub struct Pipeline {
    reader: Reader,
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
            reader: Reader { source, store, patient: false, quick: false },
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
        let Scan { readings, ignored, .. } = self.reader.source.scan();
        for sentence in &ignored {
            tracing::warn!(reason = sentence, "not a config");
        }
        if readings.is_empty() {
            let path = self.reader.source.path().display();
            return Err(vec![format!("{path} holds no config; a config is a folder with a folder for each version")]);
        }
        let applied = self.reader.store.apply(readings, OffsetDateTime::now_utc());
        self.serve(applied);
        let problems = self.reader.store.problems();
        if !problems.is_empty() {
            return Err(problems.values().map(|problem| problem.message.clone()).collect());
        }
        self.deliver().await;
        self.say();
        self.reader.source.wait_for_writers();
        match self.files_due {
            None => Ok(self),
            // Nothing is running yet, so there is nobody to serve meanwhile: better to say it than to start half.
            Some(_) => Err(vec!["the files could not be written, see above".to_owned()]),
        }
    }

    /// Follows the folder until dropped.
    pub async fn run(mut self) {
        let mut watcher = match Watcher::new(self.reader.source.path().to_owned()) {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                let every = self.reread.as_secs();
                tracing::warn!(%error, every_seconds = every, "can't watch the folder; it is re-read from time to time");
                None
            }
        };
        let mut look = Look::planned(Deadline::now());
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
            let looked;
            (self, looked) = self.look().await;
            let is_well = self.reader.store.problems().is_empty();
            look = Look::planned(Deadline::now() + if is_well { self.reread } else { self.reread.min(FAULTY) });
            let Some(Looked { applied, folders, again }) = looked else { continue };
            self.serve(applied);
            self.deliver().await;
            // Subscribers first; what else there is to do comes after them.
            tokio::task::yield_now().await;
            self.say();
            if again {
                look.planned = Deadline::now() + SOON;
            } else if watcher.as_mut().is_some_and(|watcher| watcher.watch(&folders)) {
                // What happened in a folder before it was watched made no event.
                look.planned = Deadline::now() + SETTLE;
            }
        }
    }

    /// Looks at the folder: in place where that was quick before, since handing it to another thread and back takes longer and
    /// is at the mercy of the scheduler twice; else without holding up the endpoint. `None` if that panicked; what was good
    /// stays.
    async fn look(self) -> (Self, Option<Looked>) {
        let Self { mut reader, outlets, reread, told, files_due, files_failures, reminder, unsaid } = self;
        let quick = reader.quick;
        let look = move || {
            let looked = catch_unwind(AssertUnwindSafe(|| reader.look(OffsetDateTime::now_utc())));
            (reader, looked.ok())
        };
        let (reader, looked) = if quick {
            look()
        } else {
            let Ok(looked) = tokio::task::spawn_blocking(look).await else {
                // The runtime is about to end, and this task with it.
                return std::future::pending().await;
            };
            looked
        };
        (Self { reader, outlets, reread, told, files_due, files_failures, reminder, unsaid }, looked)
    }

    /// Serves what was taken in.
    fn serve(&mut self, applied: Applied) {
        let Applied { dictionary, raised, cleared } = applied;
        let store = &self.reader.store;
        self.outlets.board.source_read(store.since(), store.problems(), Instant::now());
        if self.reminder.is_due(!store.problems().is_empty(), Instant::now()) {
            let configs: Vec<&str> = store.problems().keys().map(ConfigName::as_str).collect();
            let age_seconds = self.outlets.board.age_seconds(Instant::now());
            tracing::warn!(configs = configs.join(","), age_seconds, "not served as wanted, see /status");
        }
        for (config, problem) in raised {
            let reason = problem.reason.as_str();
            tracing::warn!(%config, reason, cause = problem.message, "the last good version stays");
        }
        for config in cleared {
            tracing::info!(%config, "all is well again");
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
            let dictionary = Arc::clone(&published.dictionary);
            let written = write_files(&folder, dictionary).await;
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
                    tracing::warn!(cause = message, "files not written; subscribers are told when they are");
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

async fn write_files(folder: &Path, dictionary: Arc<Dictionary>) -> Result<(), String> {
    let path = folder.to_owned();
    let untidy = match tokio::task::spawn_blocking(move || project(&path, &dictionary)).await {
        Ok(written) => written.map_err(|error| error.to_string())?,
        Err(error) => return Err(format!("writing failed: {error}")),
    };
    for cause in untidy {
        tracing::warn!(folder = %folder.display(), cause, "old files could not be removed");
    }
    Ok(())
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
