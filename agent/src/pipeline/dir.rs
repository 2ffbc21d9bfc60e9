//! Follows a folder, for `nudge-agent exec`.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use time::OffsetDateTime;
use tokio::time::Instant as Deadline;

use super::{Delivery, Outlets};
use crate::source::dir::{Change, DirSource, SETTLE, Scan, Watcher};
use crate::source::{Applied, Store};

/// How long after the first write the files are read although they are still being written.
const SETTLE_AT_MOST: Duration = Duration::from_secs(1);
/// When a folder is scanned again that was faulty or being written.
const RESCAN_AFTER: Duration = Duration::from_millis(100);
/// When a folder that stays faulty is scanned again: missing files may come back where nothing can be watched.
const FAULTY_RESCAN_AFTER: Duration = Duration::from_secs(1);
/// A scan that takes no longer may run on the endpoint's thread.
const MAX_INLINE_SCAN: Duration = Duration::from_millis(2);

/// Reads the folder and keeps the last good contents. Needs no runtime, so it can run on a thread that waits for a disk.
struct Reader {
    source: DirSource,
    store: Store,
    /// Whether the last scan was the first with a fault, which counts only when the next one has it too.
    patient: bool,
    /// Whether the last scan took no longer than a few requests, on a disk of this machine.
    quick: bool,
}

/// What one scan has brought.
struct Scanned {
    applied: Applied,
    folders: BTreeSet<PathBuf>,
    /// Whether the folder should be scanned again soon.
    again: bool,
}

impl Reader {
    fn scan(&mut self, now: OffsetDateTime) -> Scanned {
        let began = Instant::now();
        let Scan { mut readings, folders, unsettled, local, .. } = self.source.scan();
        self.quick = local && began.elapsed() < MAX_INLINE_SCAN;
        let faulty = readings.iter().any(|reading| reading.result.is_err());
        // Good content is taken in at once, the first fault only after a second scan: a file that is replaced in two steps is
        // missing for a moment.
        self.patient = faulty && !self.patient && self.store.problems().is_empty();
        if self.patient {
            readings.retain(|reading| reading.result.is_ok());
        }
        Scanned { applied: self.store.apply(readings, now), folders, again: self.patient || unsettled }
    }
}

/// Follows a folder and keeps the outlets up to date.
pub struct Pipeline {
    reader: Reader,
    delivery: Delivery,
    reread: Duration,
}

impl Pipeline {
    /// A pipeline that has read nothing yet. The folder is scanned every `reread`, also when no change is noticed.
    pub fn new(source: DirSource, store: Store, outlets: Outlets, reread: Duration) -> Self {
        Self {
            reader: Reader { source, store, patient: false, quick: false },
            delivery: Delivery::new(outlets),
            reread,
        }
    }

    /// Reads the folder for the first time and fills the outlets. Returns all faults, if there are any.
    pub async fn start(mut self) -> Result<Self, Vec<String>> {
        let Scan { readings, ignored, .. } = self.reader.source.scan();
        for message in &ignored {
            tracing::warn!(error = message, "folder ignored");
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
        self.delivery.deliver().await;
        self.delivery.log();
        self.reader.source.wait_for_writers();
        if self.delivery.lacks_files().is_some() {
            // Nothing runs yet that needs the rest, so it is better to fail than to start without files.
            return Err(vec!["the files could not be written; the log above has the cause".to_owned()]);
        }
        Ok(self)
    }

    /// Follows the folder until dropped.
    pub async fn run(mut self) {
        let mut watcher = match Watcher::new(self.reader.source.path().to_owned()) {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                let every_seconds = self.reread.as_secs();
                tracing::warn!(%error, every_seconds, "watching the folder failed; it is re-read from time to time");
                None
            }
        };
        let mut next = NextScan::planned(Deadline::now());
        loop {
            // No timer where the time has come already: timers wake up to a millisecond late.
            if next.at() > Deadline::now() {
                tokio::select! {
                    change = changed(&mut watcher) => next.hurry(change, Deadline::now()),
                    () = tokio::time::sleep_until(next.at()) => {}
                    () = self.delivery.files_due() => self.delivery.deliver().await,
                }
                continue;
            }
            let scanned;
            (self, scanned) = self.scan().await;
            let is_well = self.reader.store.problems().is_empty();
            next = NextScan::planned(
                Deadline::now() + if is_well { self.reread } else { self.reread.min(FAULTY_RESCAN_AFTER) },
            );
            let Some(Scanned { applied, folders, again }) = scanned else { continue };
            self.serve(applied);
            self.delivery.deliver().await;
            // Subscribers are notified before anything else happens.
            tokio::task::yield_now().await;
            self.delivery.log();
            if again {
                next.planned = Deadline::now() + RESCAN_AFTER;
            } else if watcher.as_mut().is_some_and(|watcher| watcher.watch(&folders)) {
                // Changes in a folder before it was watched made no event.
                next.planned = Deadline::now() + SETTLE;
            }
        }
    }

    /// Scans the folder: on this thread where that was quick before, since handing the work to another thread and back takes longer;
    /// else without holding up the endpoint. `None` if the scan panicked; the good contents stay.
    async fn scan(self) -> (Self, Option<Scanned>) {
        let Self { mut reader, delivery, reread } = self;
        let quick = reader.quick;
        let scan = move || {
            let scanned = catch_unwind(AssertUnwindSafe(|| reader.scan(OffsetDateTime::now_utc())));
            (reader, scanned.ok())
        };
        let (reader, scanned) = if quick {
            scan()
        } else {
            let Ok(scanned) = tokio::task::spawn_blocking(scan).await else {
                // The runtime is about to end, and this task with it.
                return std::future::pending().await;
            };
            scanned
        };
        (Self { reader, delivery, reread }, scanned)
    }

    fn serve(&mut self, applied: Applied) {
        let store = &self.reader.store;
        self.delivery.serve(store, applied, store.problems().is_empty());
    }
}

/// The next change; never without a watcher.
async fn changed(watcher: &mut Option<Watcher>) -> Change {
    match watcher {
        None => std::future::pending().await,
        Some(watching) => match watching.changed().await {
            Ok(change) => change,
            Err(error) => {
                tracing::warn!(%error, "watching the folder failed; it is re-read from time to time");
                *watcher = None;
                Change::Current
            }
        },
    }
}

/// When the folder is scanned next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NextScan {
    planned: Deadline,
    /// When single files began to be written, and when it will have been quiet for long enough.
    writing: Option<(Deadline, Deadline)>,
}

impl NextScan {
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
    fn a_switch_is_read_at_once_and_written_files_when_it_is_quiet() {
        let start = Deadline::now();
        let idle = NextScan::planned(start + Duration::from_mins(1));

        let mut next = idle;
        next.hurry(Change::Current, start);
        assert_eq!(next.at(), start);

        let mut next = idle;
        next.hurry(Change::Content, start);
        assert_eq!(next.at(), start + SETTLE);
        let later = start + Duration::from_millis(30);
        next.hurry(Change::Content, later);
        assert_eq!(next.at(), later + SETTLE, "a second write puts it off");
        next.hurry(Change::Current, later);
        assert_eq!(next.at(), later, "a switch does not wait");

        let mut next = idle;
        for millis in (0..1200).step_by(30) {
            next.hurry(Change::Content, start + Duration::from_millis(millis));
        }
        assert_eq!(next.at(), start + SETTLE_AT_MOST, "not for ever");
    }
}
