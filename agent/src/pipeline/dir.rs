//! Follows a folder, for `nudge-agent exec`.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use time::OffsetDateTime;
use tokio::time::Instant as Deadline;

use super::{Delivery, Outlets};
use crate::source::dir::{DirSource, FolderChange, SETTLE_TIME, Scan, Watcher};
use crate::source::{Applied, Store};

/// How long after the first write the files are read even if writing continues.
const MAX_SETTLE_TIME: Duration = Duration::from_secs(1);
/// The delay before a folder that was faulty or being written is scanned again.
const RESCAN_DELAY: Duration = Duration::from_millis(100);
/// The interval of scans of a folder that stays faulty: missing files may come back in a folder that can't be watched.
const FAULTY_RESCAN_DELAY: Duration = Duration::from_secs(1);
/// The longest time that a scan may take on the endpoint's thread.
const MAX_INLINE_SCAN_TIME: Duration = Duration::from_millis(2);

/// The reader of the folder, with the last good contents. It needs no runtime, so it can run on a thread that waits for
/// a disk.
struct FolderReader {
    source: DirSource,
    store: Store,
    /// Whether the last scan was the first with a fault. Such a fault counts only if the next scan has it, too.
    is_first_fault: bool,
    /// Whether the last scan took no longer than a few requests, on a disk of this machine.
    is_quick: bool,
}

/// The result of one scan.
struct ScanResult {
    applied: Applied,
    folders: BTreeSet<PathBuf>,
    /// Whether the folder should be scanned again soon.
    rescans_soon: bool,
}

impl FolderReader {
    fn scan(&mut self, now: OffsetDateTime) -> ScanResult {
        let began = Instant::now();
        let Scan { mut readings, folders, unsettled, local, .. } = self.source.scan();
        self.is_quick = local && began.elapsed() < MAX_INLINE_SCAN_TIME;
        let faulty = readings.iter().any(|reading| reading.result.is_err());
        // Good content is taken in at once, the first fault only after a second scan: a file that is replaced in two
        // steps is missing for a moment.
        self.is_first_fault = faulty && !self.is_first_fault && self.store.problems().is_empty();
        if self.is_first_fault {
            readings.retain(|reading| reading.result.is_ok());
        }
        ScanResult { applied: self.store.apply(readings, now), folders, rescans_soon: self.is_first_fault || unsettled }
    }
}

/// The pipeline that follows a folder and keeps the outlets up to date.
pub struct DirPipeline {
    reader: FolderReader,
    delivery: Delivery,
    reread_interval: Duration,
}

impl DirPipeline {
    /// Creates a pipeline that has read nothing yet. The folder is scanned at every `reread_interval`, also when no
    /// change is noticed.
    pub fn new(source: DirSource, store: Store, outlets: Outlets, reread_interval: Duration) -> Self {
        Self {
            reader: FolderReader { source, store, is_first_fault: false, is_quick: false },
            delivery: Delivery::new(outlets),
            reread_interval,
        }
    }

    /// Reads the folder for the first time and fills the outlets. Returns all faults.
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
        if self.delivery.files_error().is_some() {
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
                let every_seconds = self.reread_interval.as_secs();
                tracing::warn!(%error, every_seconds, "watching the folder failed; it is re-read from time to time");
                None
            }
        };
        let mut next = NextScan::planned(Deadline::now());
        loop {
            // No timer if the time has come already: timers wake up to a millisecond late.
            if next.at() > Deadline::now() {
                tokio::select! {
                    change = next_change(&mut watcher) => next.hurry(change, Deadline::now()),
                    () = tokio::time::sleep_until(next.at()) => {}
                    () = self.delivery.wait_until_files_due() => self.delivery.deliver().await,
                }
                continue;
            }
            let result;
            (self, result) = self.scan().await;
            let is_well = self.reader.store.problems().is_empty();
            next = NextScan::planned(
                Deadline::now()
                    + if is_well { self.reread_interval } else { self.reread_interval.min(FAULTY_RESCAN_DELAY) },
            );
            let Some(ScanResult { applied, folders, rescans_soon }) = result else { continue };
            self.serve(applied);
            self.delivery.deliver().await;
            // Subscribers are notified before anything else happens.
            tokio::task::yield_now().await;
            self.delivery.log();
            if rescans_soon {
                next.planned = Deadline::now() + RESCAN_DELAY;
            } else if watcher.as_mut().is_some_and(|watcher| watcher.watch(&folders)) {
                // Changes in a folder before it was watched made no event.
                next.planned = Deadline::now() + SETTLE_TIME;
            }
        }
    }

    /// Scans the folder. A scan that was quick before runs on this thread, since handing the work to another thread and
    /// back takes longer. Other scans do not hold up the endpoint. The result is `None` if the scan panicked; the good
    /// contents stay.
    async fn scan(self) -> (Self, Option<ScanResult>) {
        let Self { mut reader, delivery, reread_interval } = self;
        let is_quick = reader.is_quick;
        let scan = move || {
            let result = catch_unwind(AssertUnwindSafe(|| reader.scan(OffsetDateTime::now_utc())));
            (reader, result.ok())
        };
        let (reader, result) = if is_quick {
            scan()
        } else {
            match tokio::task::spawn_blocking(scan).await {
                Ok(scanned) => scanned,
                // The runtime will end soon, and this task with it.
                Err(_) => std::future::pending().await,
            }
        };
        (Self { reader, delivery, reread_interval }, result)
    }

    fn serve(&mut self, applied: Applied) {
        let store = &self.reader.store;
        self.delivery.serve(store, applied, store.problems().is_empty().then(Instant::now));
    }
}

/// Waits for the next change; for ever without a watcher.
async fn next_change(watcher: &mut Option<Watcher>) -> FolderChange {
    match watcher {
        None => std::future::pending().await,
        Some(watching) => match watching.next_change().await {
            Ok(change) => change,
            Err(error) => {
                tracing::warn!(%error, "watching the folder failed; it is re-read from time to time");
                *watcher = None;
                FolderChange::Current
            }
        },
    }
}

/// The time of the next scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NextScan {
    planned: Deadline,
    writes: Option<Writes>,
}

/// Writes of single files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Writes {
    began: Deadline,
    /// The time when the writes count as finished.
    settled: Deadline,
}

impl NextScan {
    fn planned(deadline: Deadline) -> Self {
        Self { planned: deadline, writes: None }
    }

    fn at(&self) -> Deadline {
        self.writes.map_or(self.planned, |writes| writes.settled.min(self.planned))
    }

    /// Brings the scan forward after a change that was noticed at `now`. Does no I/O.
    fn hurry(&mut self, change: FolderChange, now: Deadline) {
        match change {
            FolderChange::Current => self.planned = now,
            FolderChange::Content => {
                let began = self.writes.map_or(now, |writes| writes.began);
                self.writes = Some(Writes { began, settled: (now + SETTLE_TIME).min(began + MAX_SETTLE_TIME) });
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
        next.hurry(FolderChange::Current, start);
        assert_eq!(next.at(), start);

        let mut next = idle;
        next.hurry(FolderChange::Content, start);
        assert_eq!(next.at(), start + SETTLE_TIME);
        let later = start + Duration::from_millis(30);
        next.hurry(FolderChange::Content, later);
        assert_eq!(next.at(), later + SETTLE_TIME, "a second write puts it off");
        next.hurry(FolderChange::Current, later);
        assert_eq!(next.at(), later, "a switch does not wait");

        let mut next = idle;
        for millis in (0..1200).step_by(30) {
            next.hurry(FolderChange::Content, start + Duration::from_millis(millis));
        }
        assert_eq!(next.at(), start + MAX_SETTLE_TIME, "not for ever");
    }
}
