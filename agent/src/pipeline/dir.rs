//! Follows a folder, for local mode.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use time::OffsetDateTime;
use tokio::time::Instant as Deadline;

use super::{Delivery, Outlets};
use crate::source::dir::{Change, DirSource, SETTLE, Scan, Watcher};
use crate::source::{Applied, Store};

/// How long after the first write they are read all the same.
const SETTLE_AT_MOST: Duration = Duration::from_secs(1);
/// When a folder is looked at again that was faulty or being written.
const SOON: Duration = Duration::from_millis(100);
/// When a folder that stays faulty is looked at again: what is missing may come back where nothing can be watched.
const FAULTY: Duration = Duration::from_secs(1);
/// A look that takes no longer may hold up the endpoint.
const QUICK: Duration = Duration::from_millis(2);

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
    delivery: Delivery,
    reread: Duration,
}

impl Pipeline {
    /// A pipeline that has read nothing yet; `reread` is the time after which the folder is looked at without being asked.
    pub fn new(source: DirSource, store: Store, outlets: Outlets, reread: Duration) -> Self {
        Self {
            reader: Reader { source, store, patient: false, quick: false },
            delivery: Delivery::new(outlets),
            reread,
        }
    }

    /// Reads the folder for the first time and fills the outlets. Returns what is wrong, if anything.
    pub async fn start(mut self) -> Result<Self, Vec<String>> {
        let Scan { readings, ignored, .. } = self.reader.source.scan();
        for message in &ignored {
            tracing::warn!(reason = message, "not a config");
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
        self.delivery.say();
        self.reader.source.wait_for_writers();
        if self.delivery.lacks_files() {
            // Nothing is running yet, so there is nobody to serve meanwhile: better to say it than to start half.
            return Err(vec!["the files could not be written, see above".to_owned()]);
        }
        Ok(self)
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
                    () = self.delivery.files_due() => self.delivery.deliver().await,
                }
                continue;
            }
            let looked;
            (self, looked) = self.look().await;
            let is_well = self.reader.store.problems().is_empty();
            look = Look::planned(Deadline::now() + if is_well { self.reread } else { self.reread.min(FAULTY) });
            let Some(Looked { applied, folders, again }) = looked else { continue };
            self.serve(applied);
            self.delivery.deliver().await;
            // Subscribers first; what else there is to do comes after them.
            tokio::task::yield_now().await;
            self.delivery.say();
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
        let Self { mut reader, delivery, reread } = self;
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
        (Self { reader, delivery, reread }, looked)
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
